"""Operands of a call beside x: weights and biases, as they are given and as checked views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import arrays
from ..arrays import ArrayView
from .activations import SILU, Activation
from .problem import Problem, describe
from .weights import gate_up, intermediate


class WeightArrays(NamedTuple):
    """Weights and biases as the arguments of a call: arrays of any library, or None.

    `w_gate` may be `PackedWeights`, with `w_up` None. The fields bear the arguments' names.
    """

    w_gate: Any
    w_up: Any = None
    w_down: Any = None
    b_gate: Any = None
    b_up: Any = None
    b_down: Any = None


@dataclass(frozen=True)
class Weights:
    """Weights and biases as views.

    Attributes
    ----------
    gate_up : tuple of ArrayView
        Gate and up, or the one packed matrix of both.
    down : ArrayView or None
        None for swiglu.
    b_gate, b_up, b_down : ArrayView or None
        The biases.
    """

    gate_up: tuple[ArrayView, ...]
    down: ArrayView | None = None
    b_gate: ArrayView | None = None
    b_up: ArrayView | None = None
    b_down: ArrayView | None = None

    @classmethod
    def view(cls, given: WeightArrays, stream: Any = None) -> Weights:
        """View arrays for use on `stream`, unchecked but for what each is by itself.

        Raises
        ------
        TypeError, ValueError
            As `arrays.view` and `weights.gate_up`.
        """
        others = zip(given._fields[2:], given[2:], strict=True)
        return cls(
            gate_up(given.w_gate, given.w_up, stream),
            *(
                None if array is None else arrays.view(name, array, stream)
                for name, array in others
            ),
        )

    @property
    def k(self) -> int:
        """Hidden size: columns of x."""
        return self.gate_up[0].shape[0]

    @property
    def all_down(self) -> tuple[ArrayView, ...]:
        """Weight of the down projection as a plan takes it, a tuple; empty for swiglu."""
        return () if self.down is None else (self.down,)

    @property
    def n(self) -> int:
        """Intermediate size."""
        return intermediate(self.gate_up)

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.n if self.down is None else self.down.shape[1]

    @property
    def biases(self) -> list[ArrayView]:
        """Biases that were given, in order."""
        return [bias for bias in (self.b_gate, self.b_up, self.b_down) if bias is not None]

    @property
    def gate_up_biases(self) -> tuple[ArrayView | None, ...]:
        """Biases of gate and up, as their plan takes them: two, or none."""
        both = self.b_gate, self.b_up
        return () if both == (None, None) else both

    @property
    def down_biases(self) -> tuple[ArrayView | None, ...]:
        """Bias of the down projection, as its plan takes it: beside a None, or none."""
        return () if self.b_down is None else (self.b_down, None)

    @property
    def views(self) -> list[ArrayView]:
        """Views of all weights and biases that were given."""
        return [*self.gate_up, *self.all_down, *self.biases]


def problems(
    x: ArrayView, weights: Weights, out: ArrayView | None, activation: Activation = SILU
) -> tuple[Problem, ...]:
    """Describe gate and up, and, where there is one, the down projection of their result.

    x and out are matrices; without `out`, the last problem is of a new array.
    """
    down, hidden = weights.down, out
    if down is not None:
        hidden = arrays.new_view("hidden", (x.shape[0], weights.n), x.device, x.dtype)
    biased = bool(weights.gate_up_biases)
    first = describe(x, weights.gate_up, hidden, activation=activation, biased=biased)
    if down is None or hidden is None:
        return (first,)
    return first, describe(hidden, (down,), out, biased=bool(weights.down_biases))
