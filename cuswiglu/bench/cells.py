"""Cells: which model's MLP at how many tokens."""

from __future__ import annotations

from dataclasses import dataclass

from ..models.shapes import SHAPES

PREFIX = "qwen2.5-"
MODELS = ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "72b")
TOKENS = (512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Cell:
    """A model's MLP on `m` tokens; `k` is the hidden, `n` the intermediate size."""

    model: str
    k: int
    n: int
    m: int

    def __str__(self) -> str:
        """Name the model and the number of tokens."""
        return f"{self.model} at M = {self.m}"

    def flops(self, *, whole_mlp: bool = False) -> int:
        """Count the products' operations, of gate and up or of all three.

        The activation's are below a thousandth of them.
        """
        return (6 if whole_mlp else 4) * self.m * self.n * self.k

    @property
    def gate_up_bytes(self) -> int:
        """Bytes of both weights, BF16."""
        return 2 * self.n * self.k * 2


def cell(model: str, m: int) -> Cell:
    """Make the cell of a Qwen-2.5 model."""
    k, n = SHAPES[PREFIX + model]
    return Cell(model, k, n, m)
