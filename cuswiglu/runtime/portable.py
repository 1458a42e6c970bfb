"""The portable path, and the reference on the CPU, as plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays import ArrayView
from ..problem import PackedWeights, Problem
from ..selection.select import Choice


class PortablePlan:
    """Plan of a product on the portable path, or of the reference: array libraries launch it.

    Parameters
    ----------
    problem : Problem
    choice : Choice
        Without a kernel.
    compute : function
        `swiglu` or `matmul` of a backend.
    """

    def __init__(self, problem: Problem, choice: Choice, compute: Callable[..., None]) -> None:
        self.problem = problem
        self.choice = choice
        self._compute = compute

    def __call__(
        self,
        x: ArrayView,
        weights: Sequence[ArrayView],
        out: ArrayView,
        stream: int,
        biases: Sequence[ArrayView | None] = (),
    ) -> None:
        """Compute; on a device, on CuPy's current stream, which the caller has set to `stream`."""
        operands = [weight.array for weight in weights]
        if weights[0].packing:
            operands = list(PackedWeights(operands[0].T, weights[0].packing).unpack())
        options: dict[str, Any] = {}
        if biases:
            options["biases"] = tuple(bias and bias.array for bias in biases)
        if self.problem.gated:
            options["activation"] = self.problem.activation
        self._compute(x.array, *operands, out.array, **options)
