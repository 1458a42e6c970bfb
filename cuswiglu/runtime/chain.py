"""Chains: gate and up, then the down projection, whose input is their result.

No other module says what follows what. Where both are kernels' work, addresses are enough; views
of arrays always are, on the CPU too.
"""

from __future__ import annotations

import threading
from typing import Any

from .. import arrays
from ..arrays import ArrayView
from ..problem import Weights
from .arguments import Addresses
from .plan import Plan, Sm90Plan

#: Addresses of gate, up and down, then of two biases of gate and up, or none, and likewise of down:
#: see `weight_addresses`. No named tuple, which takes a third of a microsecond longer to make.
WeightAddresses = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]


def weight_addresses(
    gate: int, up: int, down: int, b_gate: int, b_up: int, b_down: int
) -> WeightAddresses:
    """Gather addresses, 0 for what there is not; of packed weights, the same twice."""
    biases = (b_gate, b_up) if b_gate or b_up else ()
    return gate, up, down, biases, (b_down, 0) if b_down else ()


def kernel_addresses(
    x: int, weights: WeightAddresses, hidden: int, out: int
) -> tuple[Addresses, Addresses]:
    """Put addresses in the order of the gate-up kernel's operands, and of the down kernel's."""
    gate, up, down, gate_up_biases, down_biases = weights
    first, second = (x, gate, up, hidden), (hidden, down, down, out)
    return first + gate_up_biases, second + down_biases


class Chain:
    """Plan of gate and up, and that of the down projection if there is one.

    They are the chain's own: nobody else points their kernels at other arrays.

    Attributes
    ----------
    plans : tuple of plan
    of_kernels : bool
        Whether all plans are of kernels, so that addresses are enough.
    launch_gate_up, launch_down : function of addresses and stream
        What the kernels' plans launch with, while `lock` is held; None where there is no kernel.
    lock : threading.Lock
    """

    def __init__(self, gate_up: Plan, down: Plan | None = None) -> None:
        self.plans = (gate_up,) if down is None else (gate_up, down)
        self.of_kernels = all(isinstance(plan, Sm90Plan) for plan in self.plans)
        self.launch_gate_up: Any = getattr(gate_up, "launch", None)
        self.launch_down: Any = getattr(down, "launch", None)
        self.lock = threading.Lock()

    def launch(self, x: int, weights: WeightAddresses, hidden: int, out: int, stream: int) -> None:
        """Launch the kernels on operands at these addresses, from any thread.

        Without a down projection, `hidden` and `out` are the same.
        """
        first, second = kernel_addresses(x, weights, hidden, out)
        with self.lock:
            self.launch_gate_up(first, stream)
            if self.launch_down is not None:
                self.launch_down(second, stream)

    def __call__(self, x: ArrayView, weights: Weights, out: ArrayView, stream: int) -> None:
        """Compute with matrices that lie as planned, on `stream`, which is the current one."""
        gate_up, *others = self.plans
        hidden = out
        if others:
            shape = gate_up.problem.m, weights.n
            hidden = arrays.view("hidden", arrays.empty(shape, x.device, x.dtype))
        gate_up(x, weights.gate_up, hidden, stream, weights.gate_up_biases)
        for down in others:
            down(hidden, weights.all_down, out, stream, weights.down_biases)

    def load_weights_ahead(self) -> None:
        """Load gate and up ahead, as `Sm90Plan.load_weights_ahead`; down's are already."""
        gate_up = self.plans[0]
        if isinstance(gate_up, Sm90Plan):
            gate_up.load_weights_ahead()
