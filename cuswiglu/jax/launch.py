"""What XLA's custom call runs: the launches of swiglu or mlp on XLA's stream and memory."""

from __future__ import annotations

import dataclasses
import json
import threading
from dataclasses import dataclass
from typing import Any

from .. import arrays, problem
from ..arrays import ArrayView
from ..common.cache import Cache
from ..common.device import Device
from ..common.dtypes import ELEMENTS
from ..problem import TMA_ALIGNMENT, Problem, activations
from ..problem.activations import Activation, ClampedSwiGLU
from ..runtime import plan
from ..runtime.driver import driver
from ..runtime.plan import Sm90Plan
from . import xla
from .xla import Call

#: Name of the custom call. Compiled programs that JAX keeps on disk hold it: what it means stays.
TARGET = "cuswiglu_gated_mlp_1"
CACHED_LAUNCHES = 256


@dataclass(frozen=True)
class Description:
    """All that a call needs to know beyond addresses; the text of its attribute.

    `layout` says how the weights lie: "k" for (N, K) and (K_out, N), "n" for (K, N) and (N, K_out),
    row-major. `gate_up` and `down` name kernels; without a `down`, the call is swiglu and `k_out`
    is 0. `biases` names those that there are, in the order of arguments. What has a default is
    missing in programs of before it could be asked for.
    """

    m: int
    k: int
    n: int
    k_out: int
    layout: str
    gate_up: str
    down: str
    activation: str = "silu"
    alpha: float = 0.0
    limit: float = 0.0
    biases: tuple[str, ...] = ()
    dtype: str = "bfloat16"

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def parse(cls, text: bytes) -> Description:
        read = cls(**json.loads(text))
        return dataclasses.replace(read, biases=tuple(read.biases))

    @property
    def arguments(self) -> list[str]:
        """Names of those behind x."""
        return ["w_gate", "w_up", *(["w_down"] if self.down else []), *self.biases]

    @property
    def operands(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of each argument, then of each result, as they lie in memory."""
        gate = (self.k, self.n) if self.layout == "n" else (self.n, self.k)
        down = (self.n, self.k_out) if self.layout == "n" else (self.k_out, self.n)
        shapes: dict[str, tuple[int, ...]] = {"w_gate": gate, "w_up": gate, "w_down": down}
        shapes |= {"b_gate": (self.n,), "b_up": (self.n,), "b_down": (self.k_out,)}
        result, hidden = ("out", (self.m, self.k_out)), (self.m, self.n)
        return [
            ("x", (self.m, self.k)),
            *((name, shapes[name]) for name in self.arguments),
            *([result, ("hidden", hidden)] if self.down else [("out", hidden)]),
        ]

    def gate_up_problem(self, device: Device) -> Problem:
        """Of x, gate and up, on arrays that XLA will allocate."""
        weights = [self._weight(name, (self.k, self.n), device) for name in ("w_gate", "w_up")]
        return problem.describe(
            arrays.new_view("x", (self.m, self.k), device, self.dtype),
            weights,
            activation=self._activation(),
            biased=bool(self.of_gate_up),
        )

    def down_problem(self, device: Device) -> Problem:
        """Hidden @ w_down + b_down, likewise."""
        down = self._weight("w_down", (self.n, self.k_out), device)
        hidden = arrays.new_view("hidden", (self.m, self.n), device, self.dtype)
        return problem.describe(hidden, [down], biased="b_down" in self.biases)

    def _weight(self, name: str, shape: tuple[int, int], device: Device) -> ArrayView:
        """How a weight of this shape will lie."""
        view = arrays.new_view(name, shape, device, self.dtype)
        return view if self.layout == "n" else view.like(None, shape, (1, shape[0]))

    def _activation(self) -> Activation:
        if self.activation == ClampedSwiGLU.name:
            return ClampedSwiGLU(self.alpha, self.limit)
        return activations.find(self.activation)

    @property
    def of_gate_up(self) -> tuple[str, ...]:
        """Names of the biases of gate and up, as a plan takes them: two, or none."""
        both = "b_gate", "b_up"
        return () if set(self.biases).isdisjoint(both) else both


class Launch:
    """The launches of a description on a device; to be called from any thread.

    Raises
    ------
    ValueError
        If a kernel is not there, or cannot compute this.
    """

    def __init__(self, made: Description, index: int) -> None:
        device = Device("cuda", index)
        # XLA may be recording a CUDA graph already.
        with driver().relaxed_capture():
            # No kernel of XLA's lets it start early: rather than to prefetch weights and wait, it
            # starts behind them, and loads weights at once.
            self._first = _own_plan(made.gate_up_problem(device), made.gate_up, overlapping=False)
            self._second = None
            if made.down:
                self._second = _own_plan(made.down_problem(device), made.down)
        self._names = [name for name, _ in made.operands]
        self._of_gate_up = made.of_gate_up
        self._of_down = ("b_down", "") if "b_down" in made.biases else ()
        self._lock = threading.Lock()

    def __call__(self, addresses: list[int], stream: int) -> None:
        """Launch on arguments and results at these addresses."""
        at = dict(zip(self._names, addresses, strict=True))
        for name, address in at.items():
            if address % TMA_ALIGNMENT and not name.startswith("b_"):
                raise ValueError(
                    f"{name}'s address must be a multiple of {TMA_ALIGNMENT} bytes, XLA gave "
                    f"{address:#x}: pass a copy of it"
                )
        x, gate, up, out = at["x"], at["w_gate"], at["w_up"], at["out"]
        hidden = at.get("hidden", out)
        biases = tuple(at.get(name, 0) for name in self._of_gate_up)
        with self._lock:
            self._first.launch((x, gate, up, hidden, *biases), stream)
            if self._second is not None:
                down, bias = at["w_down"], tuple(at.get(name, 0) for name in self._of_down)
                self._second.launch((hidden, down, down, out, *bias), stream)


def _own_plan(of: Problem, name: str, *, overlapping: bool = True) -> Sm90Plan:
    """A plan that nobody else points at other arrays."""
    shared = plan.plan_for(of, name)
    assert isinstance(shared, Sm90Plan)  # `name` is a kernel's
    return plan.kernel_plan(of, shared.choice, overlapping=overlapping)


_launches: Cache[tuple[bytes, int], Launch] = Cache(CACHED_LAUNCHES)


def execute(call: Call) -> None:
    """Launch what a call asks for."""
    key = call.attribute, call.device
    launch = _launches.get(key)
    if launch is None:
        made = Description.parse(key[0])
        expected = [(ELEMENTS[made.dtype].xla, shape) for _, shape in made.operands]
        if call.buffers != expected:
            raise ValueError(f"the call's arrays are {call.buffers}, expected {expected}")
        launch = Launch(made, key[1])
        _launches.put(key, launch)
    launch(call.addresses, call.stream)


#: Kept as long as the process: XLA has its address.
HANDLER: Any = xla.handler(execute)
