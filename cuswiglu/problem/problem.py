"""Problem: what is to be computed, free of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..arrays import ArrayView
from ..common.device import Device
from .activations import SILU, Activation
from .weights import weight_major

TMA_ALIGNMENT = 16  # bytes: of base addresses and of row strides (CUDA driver API, tensor maps)
#: Rows and columns of a matrix: TMA's coordinates are of 32 bits with a sign, as are the kernels'
#: integers, and go up to the end of a last tile.
TMA_EXTENT = 2**31 - 1024
ELEMENT_BYTES = 2


@dataclass(frozen=True)
class Operand:
    """A matrix as TMA sees it: `rows` rows of `columns` contiguous elements.

    `alignment` is the largest power of two, up to 16, that divides its address in bytes.
    """

    name: str
    rows: int
    columns: int
    stride: int  # elements from row to row
    alignment: int

    def tma_obstacle(self) -> str | None:
        """Why a TMA descriptor cannot express it, and what to do, or None."""
        elements = TMA_ALIGNMENT // ELEMENT_BYTES
        if self.alignment % TMA_ALIGNMENT:
            return (
                f"{self.name}'s address is a multiple of {self.alignment} bytes only, "
                f"TMA needs {TMA_ALIGNMENT}: pass {self.name} in an array of its own, or as a "
                f"slice that begins at a multiple of {elements} elements"
            )
        if self.stride * ELEMENT_BYTES % TMA_ALIGNMENT:
            return (
                f"{self.name}'s row stride is {self.stride * ELEMENT_BYTES} bytes, "
                f"TMA needs a multiple of {TMA_ALIGNMENT}: pass {self.name} contiguous, or with "
                f"rows padded to a multiple of {elements} elements"
            )
        for count, of in ((self.rows, "rows"), (self.columns, "columns")):
            if count > TMA_EXTENT:
                return (
                    f"{self.name} has {count} {of}, TMA counts up to {TMA_EXTENT}: pass "
                    f"{self.name} in parts"
                )
        return None


@dataclass(frozen=True)
class Problem:
    """(M, K) @ (K, N) to (M, N): a gated product of two weights, or a plain product of one.

    `major` is how the weights lie: "k" (checkpoint), "n" (Flax), "mixed" when they differ, or "p8"
    and "p1" for one packed matrix of gate and up. `activation` is of gate and up, and `biased` says
    whether something is added to a product.
    It holds no address, so that plans are shared by all arrays of the same kind.
    """

    m: int
    n: int
    k: int
    major: str
    x: Operand
    weights: tuple[Operand, ...]
    out: Operand
    device: Device
    dtype: str = "bfloat16"
    activation: Activation = SILU
    biased: bool = False

    @property
    def gated(self) -> bool:
        """Whether it is of gate and up."""
        return len(self.weights) == 2 or self.packed

    @property
    def extras(self) -> bool:
        """Whether it has biases or another activation than SiLU: kernels have entries for these."""
        return self.biased or (self.gated and self.activation != SILU)

    @property
    def packed(self) -> bool:
        """Whether gate and up are one matrix."""
        return self.major.startswith("p")

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.x, *self.weights, self.out

    @property
    def flops(self) -> int:
        """Floating-point operations of the products."""
        return (4 if self.gated else 2) * self.m * self.n * self.k

    def tma_obstacle(self) -> str | None:
        """The first thing TMA cannot express, or None."""
        return next(filter(None, (operand.tma_obstacle() for operand in self.operands)), None)


def _alignment(pointer: int) -> int:
    return TMA_ALIGNMENT if pointer == 0 else min(TMA_ALIGNMENT, pointer & -pointer)


def operand(array: ArrayView) -> Operand:
    """The TMA view of a matrix that is contiguous along rows or along columns."""
    rows, columns = array.shape
    row_stride, column_stride = array.strides
    if weight_major(array) == "k":
        rows, columns, row_stride = columns, rows, column_stride
    stride = row_stride if rows > 1 else max(columns, row_stride)
    return Operand(array.name, rows, columns, stride, _alignment(array.pointer))


def describe(
    x: ArrayView,
    weights: Sequence[ArrayView],
    out: ArrayView | None = None,
    *,
    activation: Activation = SILU,
    biased: bool = False,
) -> Problem:
    """The problem of checked arrays; x and out as matrices (`arrays.matrix`).

    `weights` are gate and up, or one alone. Without `out`, the problem of a new array.
    """
    (m, k), n = x.shape, weights[0].shape[1]
    majors = {weight_major(weight) for weight in weights}
    if weights[0].packing:
        n, majors = n // 2, {f"p{weights[0].packing}"}
    return Problem(
        m=m,
        n=n,
        k=k,
        major=str(majors.pop()) if len(majors) == 1 else "mixed",
        x=_rows(x),
        weights=tuple(operand(weight) for weight in weights),
        out=Operand("out", m, n, n, TMA_ALIGNMENT) if out is None else _rows(out),
        device=x.device,
        dtype=x.dtype,
        activation=activation,
        biased=biased,
    )


def _rows(array: ArrayView) -> Operand:
    rows, columns = array.shape
    stride = array.strides[0] if rows > 1 else -(-columns // 8) * 8
    return Operand(array.name, rows, columns, stride, _alignment(array.pointer))
