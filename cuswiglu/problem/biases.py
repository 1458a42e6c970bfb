"""Biases of gate, up and down: looked at, checked, and as a plan takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import arrays
from ..arrays import ArrayView


@dataclass(frozen=True)
class Biases:
    """What is added to the products; None where nothing is."""

    gate: ArrayView | None = None
    up: ArrayView | None = None
    down: ArrayView | None = None

    @property
    def given(self) -> list[ArrayView]:
        """Those that there are."""
        return [bias for bias in (self.gate, self.up, self.down) if bias is not None]

    @property
    def of_gate_up(self) -> tuple[ArrayView | None, ...]:
        """As the plan of gate and up takes them: two, or none."""
        both = self.gate, self.up
        return () if both == (None, None) else both

    @property
    def of_down(self) -> tuple[ArrayView | None, ...]:
        """As the plan of the down projection takes them."""
        return () if self.down is None else (self.down, None)


def view(stream: Any = None, b_gate: Any = None, b_up: Any = None, b_down: Any = None) -> Biases:
    """Look at biases, for use on `stream`.

    Raises
    ------
    TypeError, ValueError
        As `arrays.view`.
    """
    named = {"b_gate": b_gate, "b_up": b_up, "b_down": b_down}
    return Biases(
        *(
            None if array is None else arrays.view(name, array, stream)
            for name, array in named.items()
        )
    )
