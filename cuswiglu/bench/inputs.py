"""The inputs of a cell: one x, and weights rotated past the L2, the same for all contenders."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import cupy_module
from ..common.dtypes import BFLOAT16
from ..testing import timing
from . import fp64
from .cells import Cell

WORKSPACE_BYTES = 64 << 20
#: Of w_down's values in a stack: x + mlp(x) then stays of one size through dozens of layers.
STACK_SCALE = 0.2
_NAN = 0x7FC0  # of BF16 and of FP16


@dataclass(frozen=True)
class Inputs:
    """Arrays of a cell, all of one dtype on the GPU.

    Attributes
    ----------
    cell : Cell
    x : (M, K) cupy.ndarray
        N(0, 1).
    w2 : tuple of (2N, K) cupy.ndarray
        Sets of weights, N(0, 1) / sqrt(K), gate rows above up rows.
    w_down : tuple of (K_out, N) cupy.ndarray
        N(0, 1) / sqrt(N), K_out = K; empty in suites of gate and up alone.
    stacked : bool
        Whether the sets are layers that feed each other, x + mlp(x); `w_down` is then
        `STACK_SCALE` times as large.
    biases : tuple of (2, N) cupy.ndarray
        Of each set, N(0, 1), gate's above up's: as large as the products.
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
        return len(self.w2)

    @functools.cached_property
    def w_gate(self) -> list[Any]:
        """(N, K), a view."""
        return [w2[: self.cell.n] for w2 in self.w2]

    @functools.cached_property
    def w_up(self) -> list[Any]:
        """(N, K), a view."""
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
            cupy_module().ascontiguousarray(w2.reshape(shape).transpose(1, 0, 2)).reshape(w2.shape)
            for w2 in self.w2
        ]

    @functools.cached_property
    def workspace(self) -> Any:
        """For cuBLAS, in bytes."""
        return cupy_module().empty(WORKSPACE_BYTES, np.uint8)

    @functools.cached_property
    def product(self) -> Any:
        """(M, 2N), uninitialised."""
        return self._empty(2 * self.cell.n)

    @functools.cached_property
    def hidden(self) -> Any:
        """(M, N), uninitialised."""
        return self._empty(self.cell.n)

    @functools.cached_property
    def result(self) -> Any:
        """(M, K_out), uninitialised."""
        return self._empty(self.cell.k)

    def _empty(self, columns: int) -> Any:
        return cupy_module().empty((self.cell.m, columns), self.dtype)

    @functools.cached_property
    def _rows(self) -> Any:
        m = self.cell.m
        rows = np.linspace(0, m - 1, min(m, fp64.SAMPLED_ROWS)).round()
        return cupy_module().asarray(rows.astype(np.int64))

    def sample(self, array: Any) -> Any:
        """The rows of a matrix of M rows that are compared with FP64, a copy."""
        return array.view(np.uint16)[self._rows].view(self.dtype)

    @functools.cached_property
    def expected(self) -> fp64.Expected:
        """FP64 results of these rows with the first set of weights."""
        down = self.w_down[0].T if self.w_down else None
        x = self.sample(self.x)
        bias = self.biases[0].reshape(-1) if self.biases else None
        found = fp64.expected(cupy_module(), x, self.w2[0], down, bias)
        if not self.stacked:
            return found
        layers = zip(self.w2, (down.T for down in self.w_down), strict=True)
        return dataclasses.replace(found, stack=fp64.stack(cupy_module(), x, layers))


def draw(
    cell: Cell, seed: int, *, whole_mlp: bool, layers: int = 0, dtype: Any = BFLOAT16
) -> Inputs:
    """Random inputs of a cell, on the current device; the same for the same seed.

    With `layers`, as many sets of weights, which feed each other. Those of another dtype are the
    same numbers before they are rounded to it.
    """
    cupy = cupy_module()
    state = np.random.SeedSequence([seed, cell.k, cell.n, cell.m]).generate_state(1)
    generator = cupy.random.default_rng(int(state[0]))

    def normal(rows: int, columns: int, scale: float) -> Any:
        values = generator.standard_normal((rows, columns), dtype=np.float32)
        values *= scale
        return values.astype(dtype)

    k, n = cell.k, cell.n
    # Gate and up alone outrun the L2: some contenders leave the down projection out.
    sets = range(layers or timing.buffer_sets(cell.gate_up_bytes))
    down = n**-0.5 * (STACK_SCALE if layers else 1)
    return Inputs(
        cell,
        normal(cell.m, k, 1.0),
        tuple(normal(2 * n, k, k**-0.5) for _ in sets),
        tuple(normal(k, n, down) for _ in sets) if whole_mlp else (),
        stacked=layers > 0,
        biases=tuple(normal(2, n, 1.0) for _ in sets),
        dtype=dtype,
    )


def poison(array: Any) -> None:
    """Fill with NaN, so that an element nobody writes is seen."""
    array.view(np.uint16)[...] = _NAN
