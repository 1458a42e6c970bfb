"""Checks of arguments: a message names the argument, what it got, what it needs, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import arrays
from ..arrays import ArrayView
from .operands import Weights
from .weights import intermediate, weight_layout


def _transpose_hint(name: str) -> str:
    return f": a checkpoint's (out, in) matrix is passed as {name}.T"


def check_weight(weight: ArrayView, rows: int | None, rows_name: str) -> None:
    """Check that a weight is 2-D, contiguous along one dimension, and has `rows` rows."""
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
    if weight_layout(weight) is None:
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


def check_operands(weights: Weights) -> None:
    """Weights and biases fit each other.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    check_gate_up(weights.gate_up, weights.down)
    check_biases(weights)


def check_biases(weights: Weights) -> None:
    """Biases are one number for each column: (N,), (N,) and (K_out,), contiguous.

    Raises
    ------
    ValueError
        Naming the argument.
    """
    for bias in weights.biases:
        columns = weights.columns if bias is weights.b_down else weights.n
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
    check_alike([weights.gate_up[0], *weights.biases])


def check_x(x: ArrayView, gate: ArrayView) -> None:
    """X is (..., K)."""
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
