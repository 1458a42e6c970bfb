"""The inputs of a cell: one x, and weights rotated past the L2, the same for all contenders."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays import cupy_module
from ...common.dtypes import BFLOAT16
from ...testing import numerics, timing
from ..cells import Cell
from .expected import SAMPLED_ROWS, Expected, stack

WORKSPACE_BYTES = 64 << 20
#: Factor of w_down's values in a stack: x + mlp(x) stays of one size through dozens of layers.
STACK_SCALE = 0.2
_NAN = 0x7FC0  # pattern of BF16 and of FP16


@dataclass(frozen=True)
class Inputs:
    """Arrays of a cell, all of one dtype, on the GPU or in NumPy.

    As `draw` makes them they are normally distributed: x is N(0, 1), weights are N(0, 1) over the
    square root of their input size, biases as large as the products.

    Attributes
    ----------
    cell : Cell
    x : (M, K) array
    w2 : tuple of (2N, K) array
        Sets of weights, gate rows above up rows.
    w_down : tuple of (K_out, N) array
        K_out = K; empty in suites of gate and up alone.
    stacked : bool
        Whether the sets are layers that feed each other, x + mlp(x); `w_down` is then
        `STACK_SCALE` times as large.
    biases : tuple of (2, N) array
        Each set's, gate's above up's.
    dtype : numpy.dtype
        BF16 or FP16.
    """

    cell: Cell
    x: Any
    w2: tuple[Any, ...]
    w_down: tuple[Any, ...]
    stacked: bool = False
    biases: tuple[Any, ...] = ()
    dtype: Any = BFLOAT16

    @property
    def sets(self) -> int:
        """Number of sets of weights."""
        return len(self.w2)

    @property
    def xp(self) -> Any:
        """Library of the arrays, numpy or cupy."""
        return np if isinstance(self.x, np.ndarray) else cupy_module()

    @functools.cached_property
    def w_gate(self) -> list[Any]:
        """Gate of each set, (N, K), a view."""
        return [w2[: self.cell.n] for w2 in self.w2]

    @functools.cached_property
    def w_up(self) -> list[Any]:
        """Up of each set, (N, K), a view."""
        return [w2[self.cell.n :] for w2 in self.w2]

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """Gate and up of each set as `cuswiglu.swiglu` takes them, (K, N) views."""
        return [(gate.T, up.T) for gate, up in zip(self.w_gate, self.w_up, strict=True)]

    @property
    def layers(self) -> list[tuple[Any, Any, Any]]:
        """Gate, up and down of each set as `cuswiglu.mlp` takes them."""
        downs = zip(self.pairs, self.w_down, strict=True)
        return [(gate, up, down.T) for (gate, up), down in downs]

    @functools.cached_property
    def interleaved(self) -> list[Any]:
        """(2N, K) copies with gate and up rows in turns, as QuACK wants them."""
        shape = (2, self.cell.n, self.cell.k)
        return [
            self.xp.ascontiguousarray(w2.reshape(shape).transpose(1, 0, 2)).reshape(w2.shape)
            for w2 in self.w2
        ]

    @functools.cached_property
    def workspace(self) -> Any:
        """Workspace of cuBLAS, bytes."""
        return self.xp.empty(WORKSPACE_BYTES, np.uint8)

    @functools.cached_property
    def product(self) -> Any:
        """Room for gate and up's product, (M, 2N)."""
        return self._empty(2 * self.cell.n)

    @functools.cached_property
    def hidden(self) -> Any:
        """Room for the intermediate, (M, N)."""
        return self._empty(self.cell.n)

    @functools.cached_property
    def result(self) -> Any:
        """Room for the MLP's result, (M, K_out)."""
        return self._empty(self.cell.k)

    def _empty(self, columns: int) -> Any:
        return self.xp.empty((self.cell.m, columns), self.dtype)

    @functools.cached_property
    def _rows(self) -> Any:
        m = self.cell.m
        rows = np.linspace(0, m - 1, min(m, SAMPLED_ROWS)).round()
        return self.xp.asarray(rows.astype(np.int64))

    def sample(self, array: Any) -> Any:
        """Copy the rows of a matrix of M rows that are compared with FP64."""
        return array.view(np.uint16)[self._rows].view(self.dtype)

    @functools.cached_property
    def expected(self) -> Expected:
        """FP64 results of these rows with the first set of weights."""
        xp, x = self.xp, self.sample(self.x)
        downs = [w_down.T for w_down in self.w_down]
        return Expected(
            xp,
            numerics.product(xp, x, self.w2[0].T),
            bias=self.biases[0].reshape(-1) if self.biases else None,
            down=downs[0] if downs else None,
            stack=stack(xp, x, zip(self.w2, downs, strict=True)) if self.stacked else None,
            x=x.astype(xp.float64),
        )


def rotated(cell: Cell) -> int:
    """Count the sets of weights of which calls find none in the L2.

    Gate and up alone outrun it: some contenders leave the down projection out.
    """
    return timing.buffer_sets(cell.gate_up_bytes)


def draw(
    cell: Cell,
    seed: int,
    *,
    whole_mlp: bool,
    layers: int = 0,
    sets: Callable[[Cell], int] = rotated,
    dtype: Any = BFLOAT16,
) -> Inputs:
    """Draw random inputs of a cell, on the current device; the same for the same seed.

    With `layers`, as many sets of weights, which feed each other; else as many as `sets` says.
    Those of another dtype are the same numbers before they are rounded to it.
    """
    cupy = cupy_module()
    state = np.random.SeedSequence([seed, cell.k, cell.n, cell.m]).generate_state(1)
    generator = cupy.random.default_rng(int(state[0]))

    def normal(rows: int, columns: int, scale: float) -> Any:
        values = generator.standard_normal((rows, columns), dtype=np.float32)
        values *= scale
        return values.astype(dtype)

    k, n = cell.k, cell.n
    count = layers or sets(cell)
    down = n**-0.5 * (STACK_SCALE if layers else 1)
    return Inputs(
        cell,
        normal(cell.m, k, 1.0),
        tuple(normal(2 * n, k, k**-0.5) for _ in range(count)),
        tuple(normal(k, n, down) for _ in range(count)) if whole_mlp else (),
        stacked=layers > 0,
        biases=tuple(normal(2, n, 1.0) for _ in range(count)),
        dtype=dtype,
    )


def poison(array: Any) -> None:
    """Fill with NaN, so that an element nobody writes is seen."""
    array.view(np.uint16)[...] = _NAN
