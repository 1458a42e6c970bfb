"""PyTorch eager and torch.compile, on views of the same memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np

from ...arrays import cupy_module
from ...testing import timing
from .base import Contender, Found, Runner, absent
from .inputs import Inputs

EAGER, COMPILE, LINEARS = "torch-eager", "torch-compile", "torch-linears"


def gate_up() -> Found:
    """Find torch-eager and torch-compile of gate and up."""
    return _found({EAGER: eager, COMPILE: _compiled}, "swiglu")


def mlp() -> Found:
    """Find torch-eager and torch-compile of the whole MLP."""
    return _found({EAGER: _eager_mlp, COMPILE: _compiled_mlp}, "mlp")


def linears() -> Found:
    """Find eager's three products without the activation."""
    return _found({LINEARS: _linears}, "mlp")


def _found(makers: dict[str, Callable[[Inputs], Runner]], computes: str) -> Found:
    reason = why_missing()
    if reason:
        return absent([*makers], reason)
    return Found([Contender(name, make, computes) for name, make in makers.items()])


def why_missing(*, on_gpu: bool = True) -> str:
    """Tell why nothing that runs on torch can take part; empty if it can."""
    try:
        import torch
    except Exception as error:
        return f"torch cannot be imported: {error}"
    return "" if torch.cuda.is_available() or not on_gpu else "torch sees no CUDA GPU"


def release() -> None:
    """Give cached memory back, if torch is in use."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.cuda.empty_cache()


def tensors(arrays: Iterable[Any]) -> list[Any]:
    """View arrays as tensors over the same memory; those in NumPy are BF16."""
    import torch

    def tensor(array: Any) -> Any:
        if isinstance(array, np.ndarray):
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_dlpack(array)

    return [tensor(array) for array in arrays]


class TorchTimed:
    """Captured by torch, which must own what it allocates meanwhile; timed on CuPy's stream."""

    def __init__(self, call: Callable[[int], Any]) -> None:
        self._call = call

    def prepare(self, stream: Any, sets: int) -> timing.Stopwatch:
        """Warm up and capture on a stream of torch's."""
        import torch

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for number in range(sets):  # compiles and tunes whatever it needs
                self._call(number)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Threads of other libraries may touch CUDA meanwhile.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            for number in range(sets):
                self._call(number)
        outside = torch.cuda.ExternalStream(stream.ptr)

        def launch(replays: int) -> None:
            with torch.cuda.stream(outside):
                for _ in range(replays):
                    graph.replay()

        return timing.events_around(stream, launch)


def runner(call: Callable[[int], Any]) -> Runner:
    """Run a function of a set's number that returns a tensor."""
    import torch

    without_gradients = torch.no_grad()(call)

    def output() -> Any:
        result = without_gradients(0).detach()
        if not result.is_cuda:
            return result.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        torch.cuda.synchronize()
        return cupy_module().from_dlpack(result)

    return Runner(output, TorchTimed(without_gradients))


def swiglu(x: Any, gate: Any, up: Any) -> Any:
    """Compute eager's gate and up; each weight is (N, K)."""
    from torch.nn import functional

    return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)


def gated_mlp(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """Compute eager's MLP; each weight is (out, in)."""
    from torch.nn import functional

    return functional.linear(swiglu(x, gate, up), down)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    # After 8 recompilations of one function torch falls back to eager, silently.
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(function)
    return compiled


def _runner_of(inputs: Inputs, function: Callable[..., Any], *weights: list[Any]) -> Runner:
    """Run a function of x and of each set's weights."""
    (x,), sets = tensors([inputs.x]), [tensors(each) for each in weights]
    return runner(lambda number: function(x, *(each[number] for each in sets)))


def eager(inputs: Inputs) -> Runner:
    """Compute gate and up operation by operation."""
    return _runner_of(inputs, swiglu, inputs.w_gate, inputs.w_up)


def _compiled(inputs: Inputs) -> Runner:
    return _runner_of(inputs, _compile(swiglu), inputs.w_gate, inputs.w_up)


def _eager_mlp(inputs: Inputs) -> Runner:
    return _runner_of(inputs, gated_mlp, inputs.w_gate, inputs.w_up, [*inputs.w_down])


def _compiled_mlp(inputs: Inputs) -> Runner:
    return _runner_of(inputs, _compile(gated_mlp), inputs.w_gate, inputs.w_up, [*inputs.w_down])


def _linears(inputs: Inputs) -> Runner:
    """Multiply alone; the third product's input is a true intermediate, made beforehand."""
    import torch
    from torch.nn import functional

    (x,), gate, up = tensors([inputs.x]), tensors(inputs.w_gate), tensors(inputs.w_up)
    down = tensors(inputs.w_down)
    with torch.no_grad():
        hidden = swiglu(x, gate[0], up[0])

    def call(number: int) -> Any:
        functional.linear(x, gate[number])
        functional.linear(x, up[number])
        return functional.linear(hidden, down[number])

    return runner(call)
