"""Cells: which model's MLP at how many tokens, and the suites that are made of them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ..models.shapes import SHAPES

PREFIX = "qwen2.5-"
MODELS = ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "72b")
TOKENS = (512, 1024, 2048, 4096)
FEW_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Cell:
    """A model's MLP on `m` tokens; `k` is the hidden, `n` the intermediate size."""

    model: str
    k: int
    n: int
    m: int

    def __str__(self) -> str:
        return f"{self.model} at M = {self.m}"

    @property
    def gate_up_flops(self) -> int:
        """Of the two products; the activation's are below a thousandth."""
        return 4 * self.m * self.n * self.k

    @property
    def gate_up_bytes(self) -> int:
        """Of both weights, BF16."""
        return 2 * self.n * self.k * 2

    @property
    def mlp_flops(self) -> int:
        return 6 * self.m * self.n * self.k


def cell(model: str, m: int) -> Cell:
    k, n = SHAPES[PREFIX + model]
    return Cell(model, k, n, m)


def random_cells(count: int, seed: int) -> tuple[Cell, ...]:
    """Shapes that no tuned table has: K, N and M drawn log-uniformly, K and N multiples of 64."""
    draw = random.Random(seed)

    def size(low: int, high: int, multiple: int) -> int:
        drawn = math.exp(draw.uniform(math.log(low), math.log(high)))
        return max(multiple, round(drawn / multiple) * multiple)

    return tuple(
        Cell(f"random{number}", size(512, 8192, 64), size(1024, 28672, 64), size(256, 8192, 1))
        for number in range(count)
    )


_ALL = tuple(cell(model, m) for model in MODELS for m in TOKENS)
#: Layers of the stack that the suite `jax` computes, as many as the model has.
LAYERS = 24
#: Suite -> its cells. `mlp`, `host`, `jax` and `tensor-parallel` compute the whole MLP; `decode`
#: that and gate and up, for few tokens; the others gate and up. `random` is how well selection does
#: where nothing was measured, among our own kernels alone; `activations` what other activations,
#: biases and FP16 take beside SiLU. `host` times the host's part of calls,
#: of a model so small that the GPU keeps up. `jax` is a stack of layers under `jax.jit`;
#: `tensor-parallel` cuts each layer over several GPUs.
SUITES: dict[str, tuple[Cell, ...]] = {
    "paper": _ALL,
    "mlp": _ALL,
    "decode": tuple(cell(model, m) for model in MODELS for m in FEW_TOKENS),
    "random": random_cells(40, seed=40),
    "activations": tuple(cell("7b", m) for m in TOKENS),
    "host": (cell("0.5b", 1), cell("0.5b", 16)),
    "jax": (cell("0.5b", 16), cell("0.5b", 512)),
    "tensor-parallel": tuple(
        cell(model, m) for model in ("7b", "32b", "72b") for m in (16, 512, 4096)
    ),
    "quick": (cell("0.5b", 2048), cell("3b", 512), cell("7b", 2048), cell("72b", 4096)),
}


def flops(suite: str, of: Cell) -> int:
    """Floating-point operations of one call in a suite."""
    return of.mlp_flops if whole_mlp(suite) else of.gate_up_flops


def whole_mlp(suite: str) -> bool:
    """Whether a suite computes the down projection too."""
    return suite in ("mlp", "decode", "host", "jax", "tensor-parallel")


def layers(suite: str) -> int:
    """Layers of the stack that a suite computes; 0 where calls are alone."""
    return LAYERS if suite == "jax" else 0


def select(
    suite: str, models: Sequence[str] | None = None, tokens: Sequence[int] | None = None
) -> list[Cell]:
    """The cells of a suite, of some models and token counts only.

    Raises
    ------
    ValueError
        If a model or a token count is not in the suite, or nothing is left.
    """
    cells = SUITES[suite]
    for name, asked, known in (
        ("model", models, list(dict.fromkeys(cell.model for cell in cells))),
        ("token count", tokens, sorted({cell.m for cell in cells})),
    ):
        for one in asked or ():
            if one not in known:
                choices = ", ".join(map(str, known))
                raise ValueError(f"suite {suite} has no {name} {one}: it has {choices}")
    chosen = [
        cell
        for cell in cells
        if (models is None or cell.model in models) and (tokens is None or cell.m in tokens)
    ]
    if not chosen:
        raise ValueError(f"suite {suite} has no cell of these models at these token counts")
    return chosen
