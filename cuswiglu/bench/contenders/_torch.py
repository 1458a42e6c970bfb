"""PyTorch eager and torch.compile, on views of the same memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from ...arrays import cupy_module
from ...testing import timing
from ..inputs import Inputs
from .base import Contender, Found, Runner, absent


def gate_up() -> Found:
    """torch-eager and torch-compile of gate and up."""
    names = ["torch-eager", "torch-compile"]
    reason = why_missing()
    if reason:
        return absent(names, reason)
    return Found([Contender(names[0], _eager), Contender(names[1], _compiled)])


def mlp() -> Found:
    """Both of the whole MLP, and eager's three products without the activation."""
    names = ["torch-eager", "torch-compile", "torch-linears"]
    reason = why_missing()
    if reason:
        return absent(names, reason)
    return Found(
        [
            Contender(names[0], eager_mlp, "mlp"),
            Contender(names[1], compiled_mlp, "mlp"),
            Contender(names[2], _linears, "mlp"),
        ]
    )


def why_missing(*, on_gpu: bool = True) -> str:
    """Why nothing that runs on torch can take part, or an empty string."""
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
    """CuPy arrays as tensors over the same memory."""
    import torch

    return [torch.from_dlpack(array) for array in arrays]


class TorchTimed:
    """Captured by torch, which must own what it allocates meanwhile; timed on CuPy's stream."""

    def __init__(self, call: Callable[[int], Any]) -> None:
        self._call = call

    def prepare(self, stream: Any, sets: int) -> timing.Stopwatch:
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
    """Of a function of a set's number that returns a tensor."""
    import torch

    without_gradients = torch.no_grad()(call)

    def output() -> Any:
        result = without_gradients(0)
        torch.cuda.synchronize()
        return cupy_module().from_dlpack(result.detach())

    return Runner(output, TorchTimed(without_gradients))


def swiglu(x: Any, gate: Any, up: Any) -> Any:
    """Eager's gate and up; each weight is (N, K)."""
    from torch.nn import functional

    return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)


def gated_mlp(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """Eager's MLP; each weight is (out, in)."""
    from torch.nn import functional

    hidden = functional.silu(functional.linear(x, gate)) * functional.linear(x, up)
    return functional.linear(hidden, down)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    # After 8 recompilations of one function torch falls back to eager, silently.
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(function)
    return compiled


def _of_gate_up(inputs: Inputs, function: Callable[..., Any]) -> Runner:
    (x,), gate, up = tensors([inputs.x]), tensors(inputs.w_gate), tensors(inputs.w_up)
    return runner(lambda number: function(x, gate[number], up[number]))


def _of_mlp(inputs: Inputs, function: Callable[..., Any]) -> Runner:
    (x,), gate, up = tensors([inputs.x]), tensors(inputs.w_gate), tensors(inputs.w_up)
    down = tensors(inputs.w_down)
    return runner(lambda number: function(x, gate[number], up[number], down[number]))


def _eager(inputs: Inputs) -> Runner:
    return _of_gate_up(inputs, swiglu)


def _compiled(inputs: Inputs) -> Runner:
    return _of_gate_up(inputs, _compile(swiglu))


def eager_mlp(inputs: Inputs) -> Runner:
    return _of_mlp(inputs, gated_mlp)


def compiled_mlp(inputs: Inputs) -> Runner:
    return _of_mlp(inputs, _compile(gated_mlp))


def _linears(inputs: Inputs) -> Runner:
    """Eager's products alone; the third one's input is a true intermediate, made beforehand."""
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
