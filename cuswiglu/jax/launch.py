"""What XLA's custom call runs: the launches of swiglu or mlp on XLA's stream and memory."""

from __future__ import annotations

import dataclasses
import json
import threading
from dataclasses import dataclass
from typing import Any

from .. import arrays, plan, problem
from ..arrays import ArrayView, Device
from ..cache import Cache
from ..driver import driver
from ..plan import Sm90Plan
from ..problem import TMA_ALIGNMENT, Problem
from . import xla
from .xla import Call

#: Name of the custom call. Compiled programs that JAX keeps on disk hold it: what it means stays.
TARGET = "cuswiglu_gated_mlp_1"
CACHED_LAUNCHES = 256
_DOWN = 3  # position of w_down among the arguments


@dataclass(frozen=True)
class Description:
    """All that a call needs to know beyond addresses; the text of its attribute.

    `layout` says how the weights lie: "k" for (N, K) and (K_out, N), "n" for (K, N) and (N, K_out),
    row-major. `gate_up` and `down` name kernels; without a `down`, the call is swiglu and `k_out`
    is 0.
    """

    m: int
    k: int
    n: int
    k_out: int
    layout: str
    gate_up: str
    down: str

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def parse(cls, text: bytes) -> Description:
        return cls(**json.loads(text))

    @property
    def operands(self) -> list[tuple[str, tuple[int, int]]]:
        """Name and shape of each argument, then of each result, as they lie in memory."""
        gate = (self.k, self.n) if self.layout == "n" else (self.n, self.k)
        named = [("x", (self.m, self.k)), ("w_gate", gate), ("w_up", gate)]
        hidden = ("hidden" if self.down else "out", (self.m, self.n))
        if not self.down:
            return [*named, hidden]
        down = (self.n, self.k_out) if self.layout == "n" else (self.k_out, self.n)
        return [*named, ("w_down", down), ("out", (self.m, self.k_out)), hidden]


def gate_up_problem(m: int, k: int, n: int, layout: str, device: Device) -> Problem:
    """silu(x @ w_gate) * (x @ w_up), on arrays that XLA will allocate."""
    weights = [weight(name, (k, n), layout, device) for name in ("w_gate", "w_up")]
    return problem.describe(arrays.to_be("x", (m, k), device), weights)


def down_problem(m: int, n: int, k_out: int, layout: str, device: Device) -> Problem:
    """hidden @ w_down, likewise."""
    down = weight("w_down", (n, k_out), layout, device)
    return problem.describe(arrays.to_be("hidden", (m, n), device), [down])


def weight(name: str, shape: tuple[int, int], layout: str, device: Device) -> ArrayView:
    """How a weight of this shape will lie."""
    view = arrays.to_be(name, shape, device)
    return view if layout == "n" else view.like(None, shape, (1, shape[0]))


class Launch:
    """The launches of a description on a device; to be called from any thread.

    Raises
    ------
    ValueError
        If a kernel is not there, or cannot compute this.
    """

    def __init__(self, made: Description, index: int) -> None:
        device = Device("cuda", index)
        first = gate_up_problem(made.m, made.k, made.n, made.layout, device)
        # XLA may be recording a CUDA graph already.
        with driver().relaxed_capture():
            self._first = _own_plan(first, made.gate_up)
            self._second = None
            if made.down:
                second = down_problem(made.m, made.n, made.k_out, made.layout, device)
                self._second = _own_plan(second, made.down)
        self._names = [name for name, _ in made.operands]
        self._lock = threading.Lock()

    def __call__(self, addresses: list[int], stream: int) -> None:
        """Launch on arguments and results at these addresses."""
        for name, address in zip(self._names, addresses, strict=True):
            if address % TMA_ALIGNMENT:
                raise ValueError(
                    f"{name}'s address must be a multiple of {TMA_ALIGNMENT} bytes, XLA gave "
                    f"{address:#x}: pass a copy of it"
                )
        if self._second is None:
            x, gate, up, out = addresses
            with self._lock:
                self._first.launch((x, gate, up, out), stream)
            return
        x, gate, up, down, out, hidden = addresses
        with self._lock:
            self._first.launch((x, gate, up, hidden), stream)
            self._second.launch((hidden, down, down, out), stream)


def _own_plan(of: Problem, name: str) -> Sm90Plan:
    """A plan that nobody else points at other arrays."""
    shared = plan.plan_for(of, name)
    assert isinstance(shared, Sm90Plan)  # `name` is a kernel's
    return plan.kernel_plan(of, shared.choice)


_launches: Cache[tuple[bytes, int], Launch] = Cache(CACHED_LAUNCHES)


def execute(call: Call) -> None:
    """Launch what a call asks for."""
    key = call.attribute, call.device
    launch = _launches.get(key)
    if launch is None:
        made = Description.parse(key[0])
        expected = [(xla.BF16, shape) for _, shape in made.operands]
        if call.buffers != expected:
            raise ValueError(f"the call's arrays are {call.buffers}, expected {expected}")
        launch = Launch(made, key[1])
        _launches.put(key, launch)
    launch(call.addresses, call.stream)


#: Kept as long as the process: XLA has its address.
HANDLER: Any = xla.handler(execute)
