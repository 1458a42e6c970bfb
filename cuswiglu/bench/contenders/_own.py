"""Our own contenders, and cuBLAS's bare products."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ... import arrays, problem
from ...api import functional
from ...api.explain import explain
from ...api.pack import pack
from ...arrays import cupy_module
from ...backends import cublas
from ...kernels import manifest, variant
from ...problem.activations import ClampedSwiGLU
from ...runtime import plan
from ...selection import select
from . import _silu_mul
from .base import Contender, Found, InapplicableError, Runner, absent
from .inputs import Inputs, poison

#: The family of an ablation that leaves the activation out.
UNGATED = "sync-bare"


def gate_up() -> Found:
    """Find auto, every tile kernel, the portable path, and the bare product."""
    found = variants(decode=False)
    found.contenders.insert(0, Contender("auto", swiglu))
    found.contenders.append(Contender("portable", lambda inputs: swiglu(inputs, "cublas")))
    found.contenders.append(Contender("bare", bare, "product"))
    return found


def variants(*, decode: bool) -> Found:
    """Find every kernel of gate and up, those for few tokens only if asked for."""
    try:
        kernels = manifest.variants()
    except manifest.KernelsUnavailableError as error:
        return absent(["variants"], str(error))
    return Found(
        [
            Contender(kernel.name, _maker(kernel), family=kernel.family)
            for kernel in kernels
            if kernel.gated and (decode or kernel.family not in variant.DECODE_FAMILIES)
        ]
    )


def built(folder: Path) -> Found:
    """Find another build's kernels for a pair of weights along K (`build_scripts --ablations`)."""
    try:
        kernels = manifest.variants(folder)
    except manifest.KernelsUnavailableError as error:
        return Found([], {str(folder): str(error)})
    return Found(
        [
            Contender(
                f"{folder.name}/{kernel.name}",
                _planned(kernel),
                "ungated" if kernel.family == UNGATED else "swiglu",
            )
            for kernel in kernels
            if kernel.gated and "k" in kernel.layouts
        ]
    )


def mlp() -> Found:
    """Find auto, GEMM + fused SiLU + GEMM, and two bare GEMMs."""
    return Found(
        [
            Contender("auto", whole_mlp, "mlp"),
            Contender("fused", fused, "mlp"),
            Contender("two-gemms", _two_gemms, "mlp"),
        ]
    )


def runner(call: Callable[[int], Any], out: Any, choice: str = "") -> Runner:
    """Run a function of a set's number that writes `out`."""

    def output() -> Any:
        poison(out)
        call(0)
        if not isinstance(out, np.ndarray):
            cupy_module().cuda.get_current_stream().synchronize()
        return out

    return Runner(output, call, choice=choice)


def _maker(kernel: variant.Variant) -> Callable[[Inputs], Runner]:
    packed = kernel.family == "interleave"

    def make(inputs: Inputs) -> Runner:
        try:
            return swiglu(inputs, kernel.name, packed=packed)
        except ValueError as error:  # names the kernel's limit
            raise InapplicableError(str(error)) from error

    return make


def swiglu(
    inputs: Inputs,
    variant: str = "auto",
    *,
    packed: bool = False,
    activation: str | ClampedSwiGLU = "silu",
    biased: bool = False,
) -> Runner:
    """Call `cuswiglu.swiglu`."""
    x, out = inputs.x, inputs.hidden
    weights: list[tuple[Any, ...]] = [*inputs.pairs]
    if packed:
        weights = [(pack(*pair),) for pair in weights]
    biases = [tuple(both) for both in inputs.biases] if biased else [(None, None)] * inputs.sets

    def call(number: int) -> None:
        b_gate, b_up = biases[number]
        functional.swiglu(
            x,
            *weights[number],
            b_gate=b_gate,
            b_up=b_up,
            activation=activation,
            out=out,
            variant=variant,
        )

    choice = explain(x, *weights[0], activation=activation, variant=variant).choice
    return runner(call, out, choice.variant)


def _planned(kernel: variant.Variant) -> Callable[[Inputs], Runner]:
    """Plan a kernel that selection does not know directly, for a pair along K."""
    choice = select.Choice("sm90", kernel.name, kernel)

    def make(inputs: Inputs) -> Runner:
        made = by_plan(inputs, lambda asked: plan.kernel_plan(asked, choice))
        return dataclasses.replace(made, choice="")  # the contender's name says it

    return make


def by_plan(inputs: Inputs, make: Callable[[problem.Problem], plan.Plan]) -> Runner:
    """Launch gate and up by a plan that is made for them, without a call."""
    x, out = arrays.view("x", inputs.x), arrays.view("out", inputs.hidden)
    weights = [(arrays.view("w_gate", gate), arrays.view("w_up", up)) for gate, up in inputs.pairs]
    made = make(problem.describe(x, weights[0], out))
    stream = cupy_module().cuda.get_current_stream
    return runner(
        lambda number: made(x, weights[number], out, stream().ptr),
        inputs.hidden,
        made.choice.variant,
    )


def bare(inputs: Inputs) -> Runner:
    """Multiply x with gate and up by cuBLAS, and nothing else."""
    weights = [w2.T for w2 in inputs.w2]
    x, out, workspace = inputs.x, inputs.product, inputs.workspace
    return runner(lambda number: cublas.matmul(x, weights[number], out, workspace), out)


def whole_mlp(inputs: Inputs) -> Runner:
    """Call `cuswiglu.mlp`."""
    x, out, weights = inputs.x, inputs.result, inputs.layers
    return runner(
        lambda number: functional.mlp(x, *weights[number], out=out),
        out,
        explain(x, *weights[0][:2]).choice.variant,
    )


def fused(inputs: Inputs) -> Runner:
    """Compute the MLP as two products of cuBLAS with one fused activation between them."""
    x, product, hidden, out = inputs.x, inputs.product, inputs.hidden, inputs.result
    both, down = [w2.T for w2 in inputs.w2], [w.T for w in inputs.w_down]
    activate, workspace = _silu_mul.kernel(), inputs.workspace

    def call(number: int) -> None:
        cublas.matmul(x, both[number], product, workspace)
        activate(product, hidden)
        cublas.matmul(hidden, down[number], out, workspace)

    return runner(call, out)


def _two_gemms(inputs: Inputs) -> Runner:
    """Multiply alone; the second product's input is a true intermediate, made beforehand."""
    x, product, out = inputs.x, inputs.product, inputs.result
    both, down = [w2.T for w2 in inputs.w2], [w.T for w in inputs.w_down]
    workspace = inputs.workspace
    cublas.matmul(x, both[0], product, workspace)
    hidden = cupy_module().empty((inputs.cell.m, inputs.cell.n), ml_dtypes.bfloat16)
    _silu_mul.kernel()(product, hidden)

    def call(number: int) -> None:
        cublas.matmul(x, both[number], product, workspace)
        cublas.matmul(hidden, down[number], out, workspace)

    return runner(call, out)
