"""Problem: what is to be computed, checked, and free of arrays.

Validation lives here: every message names the argument, what it got, what it needs, and what to do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import arrays
from .activations import SILU, Activation
from .arrays import ArrayView, Device
from .biases import Biases

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


def weight_major(weight: ArrayView) -> str | None:
    """ "n" if rows are contiguous, "k" if columns are, None if neither is."""
    (rows, columns), (row_stride, column_stride) = weight.shape, weight.strides
    if (column_stride == 1 or columns <= 1) and (row_stride >= columns or rows <= 1):
        return "n"
    if (row_stride == 1 or rows <= 1) and (column_stride >= rows or columns <= 1):
        return "k"
    return None


def _transpose_hint(name: str) -> str:
    return f": a checkpoint's (out, in) matrix is passed as {name}.T"


def check_weight(weight: ArrayView, rows: int | None, rows_name: str) -> None:
    """A weight is 2-D, contiguous along one dimension, and has `rows` rows."""
    if weight.ndim != 2:
        raise ValueError(
            f"{weight.name} must be 2-D, ({rows_name}, columns), got shape {weight.shape}"
        )
    if rows is not None and weight.shape[0] != rows:
        hint = _transpose_hint(weight.name) if weight.shape[1] == rows else ""
        raise ValueError(
            f"{weight.name} must have {rows} rows ({rows_name}), got shape {weight.shape}{hint}"
        )
    if weight.empty:
        raise ValueError(f"{weight.name} must not be empty, got shape {weight.shape}")
    if weight_major(weight) is None:
        raise ValueError(
            f"{weight.name} must be contiguous along one of its dimensions, with rows that do not "
            f"overlap, got strides {weight.strides} (elements) for shape {weight.shape}: pass a "
            "contiguous copy"
        )


def check_alike(views: Iterable[ArrayView]) -> None:
    """All arrays live in one place, and are of one dtype."""
    first, *others = views
    for other in others:
        if other.device != first.device:
            raise ValueError(
                f"{first.name} and {other.name} must live on the same device, got {first.device} "
                f"and {other.device}: move one of them"
            )
        if other.dtype != first.dtype:
            raise TypeError(
                f"{first.name} and {other.name} must have the same dtype, got {first.dtype} and "
                f"{other.dtype}: convert one of them"
            )


def gate_up(w_gate: Any, w_up: Any, stream: Any) -> tuple[ArrayView, ...]:
    """Views of gate and up, or one of packed weights, (K, 2N), where `w_up` is left out.

    Raises
    ------
    TypeError
        If `w_up` is missing, or given beside packed weights.
    """
    from .packed import PackedWeights

    if isinstance(w_gate, PackedWeights):
        if w_up is not None:
            raise TypeError("w_up must be left out where w_gate is PackedWeights, which hold both")
        whole = arrays.view("w_gate", w_gate.array.T, stream)
        return (dataclasses.replace(whole, packing=w_gate.granularity),)
    if w_up is None:
        raise TypeError("w_up must be given, unless w_gate is PackedWeights (cuswiglu.pack)")
    return tuple(view_all(stream, w_gate=w_gate, w_up=w_up))


def intermediate(weights: Sequence[ArrayView]) -> int:
    """N of gate and up, packed or not."""
    columns = weights[0].shape[1]
    return columns // 2 if weights[0].packing else columns


def check_gate_up(weights: Sequence[ArrayView], down: ArrayView | None = None) -> None:
    """Gate and up, packed or not, and the down projection fit each other."""
    if not weights[0].packing:
        check_weights(weights[0], weights[1], down)
        return
    check_packed(weights[0])
    if down is not None:
        check_weight(down, intermediate(weights), "N, half of the packed columns")
        check_alike([weights[0], down])


def check_packed(packed: ArrayView) -> None:
    """Packed weights are whole turns of rows along K, as `cuswiglu.pack` makes them."""
    turn = 2 * packed.packing
    if (
        packed.ndim != 2
        or packed.empty
        or packed.shape[1] % turn
        or (packed.strides[0] != 1 and packed.shape[0] > 1)
        or packed.strides[1] < packed.shape[0]
    ):
        raise ValueError(
            f"w_gate's packed array must be (2N, K), contiguous along K, with 2N a multiple of "
            f"{turn}, got shape {packed.shape[::-1]} and strides {packed.strides[::-1]} "
            "(elements): make it with cuswiglu.pack"
        )


def check_weights(gate: ArrayView, up: ArrayView, down: ArrayView | None = None) -> None:
    """Weights fit each other: (K, N), (K, N) and (N, K_out), on one device."""
    check_weight(gate, None, "K")
    check_weight(up, gate.shape[0], "K, as w_gate")
    if up.shape != gate.shape:
        raise ValueError(f"w_up must have the shape of w_gate, {gate.shape} (K, N), got {up.shape}")
    if down is not None:
        if down.ndim == 2 and down.shape[0] != gate.shape[1] and down.shape[1] == gate.shape[0]:
            raise ValueError(
                f"w_down must have {gate.shape[1]} rows, as w_gate of shape {gate.shape} has "
                f"columns, got shape {down.shape}{_transpose_hint('w_gate')}"
            )
        check_weight(down, gate.shape[1], "N, as w_gate has columns")
    check_alike([gate, up] if down is None else [gate, up, down])


def check_biases(biases: Biases, weights: Sequence[ArrayView], down: ArrayView | None) -> None:
    """Biases are one number for each column: (N,), (N,) and (K_out,), contiguous.

    Raises
    ------
    ValueError
        Naming the argument.
    """
    for bias in biases.given:
        of_down = down if bias is biases.down else None
        columns = intermediate(weights) if of_down is None else of_down.shape[1]
        if bias.shape != (columns,):
            raise ValueError(
                f"{bias.name} must have shape ({columns},), a number for each column of "
                f"w_{bias.name[2:]}, got {bias.shape}"
            )
        if bias.strides != (1,) and columns > 1:
            raise ValueError(
                f"{bias.name} must be contiguous, got a stride of {bias.strides[0]} elements: "
                "pass a contiguous copy"
            )
    check_alike([weights[0], *biases.given])


def check_x(x: ArrayView, gate: ArrayView) -> None:
    """x is (..., K)."""
    if x.ndim < 1:
        raise ValueError("x must have shape (..., K), got a scalar array")
    if x.shape[-1] != gate.shape[0]:
        raise ValueError(
            f"x must have K = {gate.shape[0]} columns, the rows of w_gate, got shape {x.shape}"
            f"{_transpose_hint('w_gate') if x.shape[-1] == gate.shape[1] else ''}"
        )
    check_alike([x, gate])


def check_out(out: ArrayView, shape: tuple[int, ...], inputs: Iterable[ArrayView]) -> None:
    """`out` may be written: right shape, writable, apart from every input."""
    inputs = list(inputs)
    check_alike([out, *inputs])
    if out.shape != shape:
        raise ValueError(f"out must have shape {shape}, got {out.shape}")
    if not out.writable:
        raise ValueError("out must be writable, got a read-only array: pass a copy of it")
    for other in inputs:
        check_apart(out, other)


def check_apart(out: ArrayView, other: ArrayView) -> None:
    """`out` shares no element with an input."""
    if arrays.overlap(out, other):
        raise ValueError(f"out must not overlap {other.name}: pass separate memory")


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


def tokens(x: ArrayView) -> int:
    """M: the product of x's leading dimensions."""
    return math.prod(x.shape[:-1])


def view_all(stream: Any, **named: Any) -> list[ArrayView]:
    """Views of several arguments, in order, for use on `stream`."""
    return [arrays.view(name, array, stream) for name, array in named.items()]
