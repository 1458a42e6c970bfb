"""Random arrays for tests on a GPU; of NumPy too, where what the tests share is tried on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuswiglu.common.dtypes import BFLOAT16


def drawer(xp: Any, seed: int | None = 0) -> Callable[..., Any]:
    """draw(rows, columns, scale, dtype): N(0, scale^2); with the seed None fresh each time."""
    generator = xp.random.default_rng(seed)

    def draw(rows: int, columns: int, scale: float = 1.0, dtype: Any = BFLOAT16) -> Any:
        values = generator.standard_normal((rows, columns), dtype=xp.float32) * scale
        return values.astype(dtype)

    return draw


def weight(
    draw: Callable[..., Any], k: int, n: int, layout: str = "k", dtype: Any = BFLOAT16
) -> Any:
    """A (K, N) weight, N(0, 1) / sqrt(K), that lies along N, or along K."""
    if layout == "n":
        return draw(k, n, k**-0.5, dtype)
    return draw(n, k, k**-0.5, dtype).T
