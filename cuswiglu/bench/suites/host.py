"""Suite `host`: calls timed by the host's clock, without the GPU's part, of a small model."""

from __future__ import annotations

import functools
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

from ... import problem
from ...api import functional
from ...api.gated_mlp import GatedMLP
from ...arrays import cupy_module
from ...runtime import driver, plan
from ...testing import timing
from ..cells import cell
from ..contenders import Contender, Found, Runner, _torch, absent
from ..contenders.inputs import Inputs, poison
from ..report import columns
from ..run.measure import measure
from ..run.run import Method
from .base import Suite

NAMES = (
    "planned",
    "captured",
    "unplanned",
    "unplanned-swiglu",
    "bare-launches",
    "torch-eager",
    "cupy-matmul",
)
#: Calls between two waits for the GPU. Of up to 5 kernels each, they do not fill the launch queue,
#: which holds about 1000: a full one would make the host wait.
BATCH = 40


class HostTimed:
    """Calls in batches, without waiting for the GPU meanwhile: the host's part of their time."""

    def __init__(self, call: Callable[[int], Any]) -> None:
        self.call = call

    def prepare(self, stream: Any, sets: int) -> timing.Stopwatch:
        """Call each set once; the stopwatch takes the median batch."""
        for number in range(sets):  # plans and loads whatever it needs
            self.call(number)

        def elapsed(replays: int) -> float:
            """Take the median batch's time of a call, in microseconds, times the calls."""
            numbers = list(range(sets)) * replays
            batches = [numbers[at : at + BATCH] for at in range(0, len(numbers), BATCH)]
            return statistics.median(map(self._batch, batches)) * len(numbers)

        return elapsed

    def _batch(self, numbers: list[int]) -> float:
        """Time calls on these sets, in microseconds of one."""
        call = self.call
        cupy_module().cuda.runtime.deviceSynchronize()
        collecting = gc.isenabled()
        gc.disable()
        try:
            start = time.perf_counter()
            for number in numbers:
                call(number)
            seconds = time.perf_counter() - start
        finally:
            if collecting:
                gc.enable()
        return seconds * 1e6 / len(numbers)


def calls() -> Found:
    """Find our calls, bare launches of the kernels they run, and CuPy's product."""
    return Found(
        [
            Contender("planned", _planned, "mlp"),
            Contender("captured", _captured, "mlp"),
            Contender("unplanned", _unplanned, "mlp"),
            Contender("unplanned-swiglu", _unplanned_swiglu),
            Contender("bare-launches", _bare_launches, "mlp"),
            Contender("cupy-matmul", _matmul, "product"),
        ]
    )


def torch_calls() -> Found:
    """Find torch-eager, of the whole MLP."""
    reason = _torch.why_missing()
    if reason:
        return absent([_torch.EAGER], reason)
    return Found([Contender(_torch.EAGER, _torch_eager, "mlp")])


def _runner(call: Callable[[int], Any], *, captured: bool = False) -> Runner:
    """Run a function of a set's number that returns a new CuPy array."""

    def output() -> Any:
        result = call(0)
        cupy_module().cuda.runtime.deviceSynchronize()
        return result

    return Runner(output, HostTimed(call), captured=captured)


def _planned(inputs: Inputs) -> Runner:
    x, layers = inputs.x, [GatedMLP(*weights) for weights in inputs.layers]
    return _runner(lambda number: layers[number](x))


def _captured(inputs: Inputs) -> Runner:
    steps = [GatedMLP(*weights).capture(inputs.x) for weights in inputs.layers]
    for step in steps:
        poison(step.y)
    return _runner(lambda number: steps[number](), captured=True)


def _unplanned(inputs: Inputs) -> Runner:
    x, weights = inputs.x, inputs.layers
    return _runner(lambda number: functional.mlp(x, *weights[number]))


def _unplanned_swiglu(inputs: Inputs) -> Runner:
    x, weights = inputs.x, inputs.pairs
    return _runner(lambda number: functional.swiglu(x, *weights[number]))


def _matmul(inputs: Inputs) -> Runner:
    x, weights = inputs.x, [w2.T for w2 in inputs.w2]
    return _runner(lambda number: x @ weights[number])


def _bare_launches(inputs: Inputs) -> Runner:
    """Make the driver's calls alone for the two kernels of an MLP, arguments packed before."""
    stream = cupy_module().cuda.Stream(non_blocking=True)
    plans = [_plans(inputs, weights, stream.ptr) for weights in inputs.layers]
    stream.synchronize()
    poison(inputs.result)
    cupy_module().cuda.runtime.deviceSynchronize()
    launch = driver.bindings().cuLaunchKernelEx
    packed = [tuple(made.packed for made in pair) for pair in plans]

    # A launch's stream and its packed arguments must live as long as it is made.
    def call(number: int, _held: Any = (stream, plans)) -> Any:
        (config, function, arguments), second = packed[number]
        launch(config, function, arguments, 0)
        config, function, arguments = second
        launch(config, function, arguments, 0)
        return inputs.result

    return _runner(call)


def _plans(inputs: Inputs, weights: tuple[Any, ...], stream: int) -> list[plan.Sm90Plan]:
    """Plan gate and up, and the down projection, each launched once on these arrays."""
    x, hidden, result = problem.view_all(None, x=inputs.x, hidden=inputs.hidden, out=inputs.result)
    w_gate, w_up, w_down = weights
    gate, up, down = problem.view_all(None, w_gate=w_gate, w_up=w_up, w_down=w_down)
    plans = []
    for source, factors, target in ((x, (gate, up), hidden), (hidden, (down,), result)):
        made = plan.plan_for(problem.describe(source, factors, target))
        if not isinstance(made, plan.Sm90Plan):
            names = " and ".join(factor.name for factor in factors)
            raise RuntimeError(
                f"there are no two kernels to launch: {names} take {made.choice.variant} here"
            )
        made(source, factors, target, stream)
        plans.append(made)
    return plans


def _torch_eager(inputs: Inputs) -> Runner:
    import torch

    (x,) = _torch.tensors([inputs.x])
    gate, up, down = (
        _torch.tensors(weights) for weights in (inputs.w_gate, inputs.w_up, inputs.w_down)
    )

    def call(number: int) -> Any:  # no tensor asks for a gradient
        return _torch.gated_mlp(x, gate[number], up[number], down[number])

    def output() -> Any:
        result = call(0)
        torch.cuda.synchronize()
        return cupy_module().from_dlpack(result)

    return Runner(output, HostTimed(call), captured=False)


SUITE = Suite(
    name="host",
    about="what calls cost the host, beside torch, CuPy and bare launches",
    cells=(cell("0.5b", 1), cell("0.5b", 16)),  # so small that the GPU keeps up
    contenders=(calls, torch_calls),
    columns=(
        *columns.CELL,
        *(columns.time(name, form="{:.2f}") for name in NAMES),
        columns.times("planned/bare", "planned", "bare-launches"),
        columns.times("eager/unplanned", "torch-eager", "unplanned"),
    ),
    legend="microseconds of host time of a call, while the GPU is not waited for",
    method=Method(measure=functools.partial(measure, whole_mlp=True)),
)
