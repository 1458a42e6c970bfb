"""Problem: what is to be computed, free of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from ..arrays import ArrayView
from ..common.device import Device
from ..common.dtypes import ELEMENTS
from .activations import SILU, Activation
from .weights import Layout, weight_layout

TMA_ALIGNMENT = 16  # bytes: of base addresses and of row strides (CUDA driver API, tensor maps)
#: Rows and columns of a matrix: TMA's coordinates are of 32 bits with a sign, as are the kernels'
#: integers, and go up to the end of a last tile.
TMA_EXTENT = 2**31 - 1024


class Op(Enum):
    """Operation of a problem; the value is its words for messages."""

    GATE_UP = "gate and up"  # activation(x @ gate) * (x @ up)
    PRODUCT = "one weight"  # x @ weight


@dataclass(frozen=True)
class EntryPoint:
    """An entry point of a kernel; two are equal if they are compiled for the same.

    Attributes
    ----------
    layout : Layout
        Layout of the weights.
    x, w, out : str
        Element types, by name.
    scales : str
        How scales of the weights lie; "none" where there are none.
    epilogue : str
        "silu" of gate and up, "none" of a product; "general" where biases are added, or another
        activation than SiLU is computed.
    grouped : bool
        Whether rows of x belong to groups, each with weights of its own.
    name : str
        Name in the cubin; left out by a problem, which asks for one.
    """

    layout: Layout
    x: str
    w: str
    out: str
    scales: str
    epilogue: str
    grouped: bool
    name: str = field(default="", compare=False)


@dataclass(frozen=True)
class Matrix:
    """A matrix as TMA sees it.

    Attributes
    ----------
    name : str
        The argument's.
    rows, columns, stride : int
        Rows of contiguous elements, and elements from row to row.
    alignment : int
        Largest power of two, up to 16, that divides the address in bytes.
    element : str
        Element type, by name.
    """

    name: str
    rows: int
    columns: int
    stride: int
    alignment: int
    element: str

    def bytes(self, elements: int) -> int:
        """Count the bytes of so many elements."""
        return elements * ELEMENTS[self.element].bits // 8

    @property
    def row_bytes(self) -> int:
        """Bytes from row to row."""
        return self.bytes(self.stride)

    @property
    def granule(self) -> int:
        """Number of elements in as many bytes as TMA's boxes and rows begin at multiples of."""
        return _granule(self.element)

    def tma_obstacle(self) -> str | None:
        """Say why a TMA descriptor cannot express it, and what to do, or None."""
        if self.alignment % TMA_ALIGNMENT:
            return (
                f"{self.name}'s address is a multiple of {self.alignment} bytes only, "
                f"TMA needs {TMA_ALIGNMENT}: pass {self.name} in an array of its own, or as a "
                f"slice that begins at a multiple of {self.granule} elements"
            )
        if self.row_bytes % TMA_ALIGNMENT:
            return (
                f"{self.name}'s row stride is {self.row_bytes} bytes, "
                f"TMA needs a multiple of {TMA_ALIGNMENT}: pass {self.name} contiguous, or with "
                f"rows padded to a multiple of {self.granule} elements"
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
    """(M, K) @ (K, N) to (M, N), of gate and up or of one weight.

    It holds no address, so that choices are shared by all arrays of the same kind.

    Attributes
    ----------
    op : Op
    m, n, k : int
    layout : Layout
    x : Matrix
    weights : tuple of Matrix
        Gate and up, or the one matrix that they are packed in, or the only weight.
    out : Matrix
    device : Device
    activation : Activation
        What is done to gate and up.
    biased : bool
        Whether something is added to a product.
    """

    op: Op
    m: int
    n: int
    k: int
    layout: Layout
    x: Matrix
    weights: tuple[Matrix, ...]
    out: Matrix
    device: Device
    activation: Activation = SILU
    biased: bool = False

    @property
    def gated(self) -> bool:
        """Whether it is of gate and up."""
        return self.op is Op.GATE_UP

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """Operands and result: x, the weights, out."""
        return self.x, *self.weights, self.out

    @property
    def elements(self) -> tuple[str, str, str]:
        """Element types of x, the weights and the result."""
        return self.x.element, self.weights[0].element, self.out.element

    @property
    def entry_point(self) -> EntryPoint:
        """Entry point that a kernel needs for it."""
        epilogue = "silu" if self.gated else "none"
        if self.biased or (self.gated and self.activation != SILU):
            epilogue = "general"
        return EntryPoint(self.layout, *self.elements, "none", epilogue, grouped=False)

    def tma_obstacle(self) -> str | None:
        """Say why TMA cannot express the first matrix that it cannot, or None."""
        return next(filter(None, (matrix.tma_obstacle() for matrix in self.matrices)), None)


def _granule(element: str) -> int:
    return TMA_ALIGNMENT * 8 // ELEMENTS[element].bits


def _alignment(pointer: int) -> int:
    return TMA_ALIGNMENT if pointer == 0 else min(TMA_ALIGNMENT, pointer & -pointer)


def weight_matrix(array: ArrayView) -> Matrix:
    """See a weight, contiguous along rows or along columns, as TMA does."""
    rows, columns = array.shape
    row_stride, column_stride = array.strides
    if weight_layout(array) is Layout.K:
        rows, columns, row_stride = columns, rows, column_stride
    stride = row_stride if rows > 1 else max(columns, row_stride)
    return Matrix(array.name, rows, columns, stride, _alignment(array.pointer), array.dtype)


def _row_major(array: ArrayView) -> Matrix:
    rows, columns = array.shape
    granule = _granule(array.dtype)
    stride = array.strides[0] if rows > 1 else -(-columns // granule) * granule
    return Matrix(array.name, rows, columns, stride, _alignment(array.pointer), array.dtype)


def describe(
    x: ArrayView,
    weights: Sequence[ArrayView],
    out: ArrayView | None = None,
    *,
    activation: Activation = SILU,
    biased: bool = False,
) -> Problem:
    """Describe the problem of checked arrays; x and out as matrices (`arrays.matrix`).

    `weights` are gate and up, or one alone. Without `out`, the problem of a new array.
    """
    (m, k), n, packing = x.shape, weights[0].shape[1], weights[0].packing
    layouts = {weight_layout(weight) for weight in weights}
    layout = layouts.pop() if len(layouts) == 1 else Layout.MIXED
    if packing:
        n, layout = n // 2, next(packed for packed in Layout if packed.packing == packing)
    assert layout is not None
    return Problem(
        op=Op.GATE_UP if packing or len(weights) > 1 else Op.PRODUCT,
        m=m,
        n=n,
        k=k,
        layout=layout,
        x=_row_major(x),
        weights=tuple(weight_matrix(weight) for weight in weights),
        out=Matrix("out", m, n, n, TMA_ALIGNMENT, x.dtype) if out is None else _row_major(out),
        device=x.device,
        activation=activation,
        biased=biased,
    )
