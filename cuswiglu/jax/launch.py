"""Launches of XLA's custom call: swiglu or mlp on XLA's stream and memory."""

from __future__ import annotations

import dataclasses
import json
import operator
from dataclasses import dataclass
from typing import Any

from .. import arrays, problem
from ..arrays import ArrayView
from ..common.cache import Cache
from ..common.device import Device
from ..common.dtypes import ELEMENTS
from ..problem import TMA_ALIGNMENT, Problem, WeightArrays, Weights, activations
from ..problem.activations import Activation, ClampedSwiGLU
from ..runtime import plan
from ..runtime.chain import Chain, weight_addresses
from ..runtime.driver import driver
from ..selection import select
from . import xla
from .xla import Call

#: Name of the custom call. Compiled programs that JAX keeps on disk hold it: what it means stays.
TARGET = "cuswiglu_gated_mlp_1"
CACHED_LAUNCHES = 256


@dataclass(frozen=True)
class FusedCall:
    """Facts of a custom call beyond addresses: its attribute, as JSON.

    `layout` says how the weights lie: "k" for (N, K) and (K_out, N), "n" for (K, N) and (N, K_out),
    row-major. `gate_up` and `down` name kernels; without a `down`, the call is swiglu and `k_out`
    is 0. `biases` names those that were given, in the order of arguments. Fields with a default are
    absent from programs serialised before the field existed.
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
        """Write the attribute."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def parse(cls, text: bytes) -> FusedCall:
        """Read an attribute."""
        read = cls(**json.loads(text))
        return dataclasses.replace(read, biases=tuple(read.biases))

    @property
    def arguments(self) -> list[str]:
        """Names of the arguments behind x."""
        return ["w_gate", "w_up", *(["w_down"] if self.down else []), *self.biases]

    @property
    def operands(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the arguments, then of the results, as they lie in memory."""
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

    def problems(self, device: Device) -> tuple[Problem, ...]:
        """Describe gate and up, and the down projection, on arrays that XLA will allocate."""
        gate, up = (self._weight(name, (self.k, self.n), device) for name in ("w_gate", "w_up"))
        down = self._weight("w_down", (self.n, self.k_out), device) if self.k_out else None
        sizes = {"b_gate": self.n, "b_up": self.n, "b_down": self.k_out}
        biases = {
            name: arrays.new_view(name, (sizes[name],), device, self.dtype) for name in self.biases
        }
        weights = Weights((gate, up), down, **biases)
        x = arrays.new_view("x", (self.m, self.k), device, self.dtype)
        return problem.problems(x, weights, None, self._activation())

    def _weight(self, name: str, shape: tuple[int, int], device: Device) -> ArrayView:
        """View a weight of this shape, as it will lie."""
        view = arrays.new_view(name, shape, device, self.dtype)
        return view if self.layout == "n" else view.like(None, shape, (1, shape[0]))

    def _activation(self) -> Activation:
        if self.activation == ClampedSwiGLU.name:
            return ClampedSwiGLU(self.alpha, self.limit)
        return activations.find(self.activation)


class Launch:
    """Launches of a fused call on a device; to be called from any thread.

    Raises
    ------
    ValueError
        If a kernel is not there, or cannot compute this.
    """

    def __init__(self, made: FusedCall, index: int) -> None:
        first, *second = made.problems(Device("cuda", index))
        # XLA may be recording a CUDA graph already.
        with driver().relaxed_capture():
            # No kernel of XLA's lets it start early: rather than to wait for them, it starts behind
            # them, and loads weights at once.
            name, down = select.still_there(made.gate_up), select.still_there(made.down)
            gate_up = plan.plan_for(first, name, overlapping=False)
            self._chain = Chain(gate_up, *(plan.plan_for(one, down) for one in second))
        assert self._chain.of_kernels  # their names are kernels'
        names = [name for name, _ in made.operands]
        self._aligned = [(names.index(name), name) for name in names if name[:2] != "b_"]
        # What is not there is at 0, which is put behind the addresses; swiglu's result is its out.
        hidden = "hidden" if made.down else "out"
        order = ("x", *WeightArrays._fields, hidden, "out")
        self._in_order = operator.itemgetter(
            *(names.index(name) if name in names else -1 for name in order)
        )

    def __call__(self, addresses: list[int], stream: int) -> None:
        """Launch on arguments and results at these addresses."""
        for at, name in self._aligned:
            if addresses[at] % TMA_ALIGNMENT:
                raise ValueError(
                    f"{name}'s address must be a multiple of {TMA_ALIGNMENT} bytes, XLA gave "
                    f"{addresses[at]:#x}: pass a copy of it"
                )
        x, *weights, hidden, out = self._in_order([*addresses, 0])
        self._chain.launch(x, weight_addresses(*weights), hidden, out, stream)


launches: Cache[tuple[bytes, int], Launch] = Cache(CACHED_LAUNCHES)


def execute(call: Call) -> None:
    """Launch what a custom call asks for: the handler's body."""
    key = call.attribute, call.device
    launch = launches.get(key)
    if launch is None:
        made = FusedCall.parse(key[0])
        expected = [(ELEMENTS[made.dtype].xla, shape) for _, shape in made.operands]
        if call.buffers != expected:
            raise ValueError(f"the call's arrays are {call.buffers}, expected {expected}")
        launch = Launch(made, key[1])
        launches.put(key, launch)
    launch(call.addresses, call.stream)


#: Kept as long as the process: XLA has its address.
HANDLER: Any = xla.handler(execute)
