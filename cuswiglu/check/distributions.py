"""Cases to check: cells with inputs of several distributions; for NumPy and CuPy arrays alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from ..bench.cells import Cell
from ..bench.contenders.inputs import Inputs

#: Distribution -> what it is.
DISTRIBUTIONS = {
    "normal": "x ~ N(0, 1), weights ~ N(0, 1) / sqrt(K)",
    "uniform": "x uniform in [-sqrt(3), sqrt(3)], weights so too, / sqrt(K)",
    "outliers": "heavy-tailed x, one channel in 256 30 times as large, RMS 1; weights as in normal",
    "smollm2": "SmolLM2-135M's weights, x as in outliers",
}
OUTLIER_CHANNELS = 256  # one in so many
OUTLIER_SCALE = 30.0
SMOLLM2_TOKENS = 512


@dataclass(frozen=True)
class Case:
    """A cell with inputs of one distribution; `layer` of the model whose weights they are."""

    distribution: str
    cell: Cell
    layer: int | None = None

    def __str__(self) -> str:
        """Name the distribution and the cell."""
        return f"{self.distribution}, {self.cell}"


def random_cases(cells: Sequence[Cell]) -> list[Case]:
    """Combine every cell with each distribution that is drawn."""
    drawn = [name for name in DISTRIBUTIONS if name != "smollm2"]
    return [Case(name, cell) for cell in cells for name in drawn]


def model_cases(layers: Sequence[int], k: int, n: int) -> list[Case]:
    """Make cases of layers of SmolLM2."""
    return [
        Case("smollm2", Cell(f"smollm2-135m layer {layer}", k, n, SMOLLM2_TOKENS), layer)
        for layer in layers
    ]


def at_most(cases: Sequence[Case], tokens: int) -> Iterator[Case]:
    """Shorten the cases to so many tokens at most, each once."""
    shorter = (replace(case, cell=replace(case.cell, m=min(case.cell.m, tokens))) for case in cases)
    return iter(dict.fromkeys(shorter))


def draw(xp: Any, case: Case, seed: int, weights: Any = None) -> Inputs:
    """Draw the inputs of a case, BF16; the same for the same seed and array library.

    Parameters
    ----------
    xp : module
        numpy or cupy; arrays are on the current device.
    case : Case
    seed : int
    weights : MLPWeights, optional
        A layer of a model.
    """
    cell, number = case.cell, list(DISTRIBUTIONS).index(case.distribution)
    entropy = [seed, number, cell.k, cell.n, cell.m, case.layer or 0]
    generator = xp.random.default_rng(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
    x = _ACTIVATIONS[case.distribution](xp, generator, (cell.m, cell.k)).astype(ml_dtypes.bfloat16)
    values = _uniform if case.distribution == "uniform" else _normal
    w2 = xp.empty((2 * cell.n, cell.k), ml_dtypes.bfloat16)
    halves = w2[: cell.n], w2[cell.n :]
    if weights is not None:
        for half, weight in zip(halves, (weights.gate, weights.up), strict=True):
            half[...] = xp.asarray(weight.T)
    else:
        for half in halves:
            drawn = values(xp, generator, (cell.n, cell.k))
            drawn *= cell.k**-0.5
            half[...] = drawn.astype(ml_dtypes.bfloat16)
    return Inputs(cell, x, (w2,), ())


def _normal(xp: Any, generator: Any, shape: tuple[int, int]) -> Any:
    return generator.standard_normal(shape, dtype=np.float32)


def _uniform(xp: Any, generator: Any, shape: tuple[int, int]) -> Any:
    values = generator.random(shape, dtype=np.float32)
    values -= 0.5
    values *= 12**0.5
    return values


def _outliers(xp: Any, generator: Any, shape: tuple[int, int]) -> Any:
    """Draw as behind a model's RMSNorm: heavy tails, a few channels large in every token."""
    k = shape[1]
    values = _normal(xp, generator, shape)
    values *= xp.exp(0.5 * _normal(xp, generator, shape))
    large = np.random.default_rng(k).choice(k, max(1, k // OUTLIER_CHANNELS), replace=False)
    scale = np.ones(k, np.float32)
    scale[large] = OUTLIER_SCALE
    values *= xp.asarray(scale)
    values /= xp.sqrt(xp.mean(values * values, axis=1, keepdims=True))
    return values


_ACTIVATIONS = {
    "normal": _normal,
    "uniform": _uniform,
    "outliers": _outliers,
    "smollm2": _outliers,
}
