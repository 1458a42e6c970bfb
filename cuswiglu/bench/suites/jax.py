"""Suite `jax`: a stack of layers, x + mlp(x), under `jax.jit`.

All sets of weights are the layers of one stack, and a call is one of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...api.gated_mlp import GatedMLP
from ...arrays import cupy_module
from ..cells import cell
from ..contenders import Contender, Found, Runner, _jax
from ..contenders.inputs import Inputs, poison
from ..report import columns
from ..run.measure import measure
from ..run.run import Method
from .base import Suite

#: Layers of the stack, as many as the model has.
LAYERS = 24
OURS, PLAIN, CAPTURED = "cuswiglu-jax", "jax", "captured"


def stacks() -> Found:
    """Find cuswiglu.jax and plain JAX, each under one `jax.jit`; GatedMLP in one CUDA graph."""
    found = Found([Contender(CAPTURED, _captured, "stack")])
    reason = _jax.why_missing()
    if reason:
        found.missing.update(dict.fromkeys([OURS, PLAIN], reason))
        return found
    found.contenders.append(Contender(PLAIN, functools.partial(_jitted, _jax.plain_mlp), "stack"))
    reason = _jax.why_ours_missing()
    if reason:
        found.missing[OURS] = reason
        return found
    import cuswiglu.jax

    ours = functools.partial(_jitted, cuswiglu.jax.mlp)
    found.contenders.insert(0, Contender(OURS, ours, "stack"))
    return found


def _jitted(mlp: Callable[..., Any], inputs: Inputs) -> Runner:
    import jax
    import jax.numpy as jnp

    x = jnp.from_dlpack(inputs.x)
    layers = [
        tuple(map(jnp.from_dlpack, weights))
        for weights in zip(inputs.w_gate, inputs.w_up, inputs.w_down, strict=True)
    ]

    def stack(x: Any, layers: Any) -> Any:
        for gate, up, down in layers:
            x = x + mlp(x, gate.T, up.T, down.T)
        return x

    call = jax.jit(stack)

    def output() -> Any:
        return cupy_module().from_dlpack(jax.block_until_ready(call(x, layers)))

    return Runner(output, _jax.JaxTimed(lambda: call(x, layers)), captured=False)


def _captured(inputs: Inputs) -> Runner:
    """Call and add, captured in one graph by the clock."""
    layers = [GatedMLP(*weights) for weights in inputs.layers]
    state, y, add = cupy_module().empty_like(inputs.x), inputs.result, _add()

    def call(number: int) -> None:
        x = state if number else inputs.x
        layers[number](x, out=y)
        add(x, y, state)

    def output() -> Any:
        poison(state)
        poison(y)
        for number in range(inputs.sets):
            call(number)
        cupy_module().cuda.get_current_stream().synchronize()
        return state

    return Runner(output, call)


def _add() -> Any:
    """Make a kernel that adds two BF16 arrays into a third, on the current stream."""
    return cupy_module().ElementwiseKernel(
        "T x, T y", "T z", "z = T(float(x) + float(y))", "cuswiglu_bench_add"
    )


SUITE = Suite(
    name="jax",
    about="a stack of layers under jax.jit, beside plain JAX and a CUDA graph",
    cells=(cell("0.5b", 16), cell("0.5b", 512)),
    contenders=(stacks,),
    columns=(
        *columns.CELL,
        *(columns.time(name, form="{:.0f}", calls=LAYERS) for name in (OURS, PLAIN, CAPTURED)),
        columns.times("jax/cuswiglu-jax", PLAIN, OURS),
        columns.times("cuswiglu-jax/captured", OURS, CAPTURED),
    ),
    legend=f"microseconds of {LAYERS} layers, x + mlp(x), and their ratios",
    method=Method(measure=functools.partial(measure, whole_mlp=True, layers=LAYERS)),
)
