"""Suite `glu`: gated linear units of protein models, of many rows and small K, in JAX and alone."""

from __future__ import annotations

import functools

from ...testing import timing
from ..cells import Cell
from ..contenders import Contender, Found, Runner, _jax, _own, _tokamax, _torch
from ..contenders.inputs import Inputs
from ..record import CellRecord, Record
from ..report import columns, figures, summaries
from ..run.measure import measure
from ..run.run import Method
from .base import Suite

OURS, PLAIN, AUTO = "cuswiglu-jax", "jax", "auto"
#: What an H200 reaches in a microsecond: bytes of a copy, and operations under its power limit.
COPY_RATE, FLOPS_RATE = 4.3e6, 7.5e8
#: Rows, K and N.
SHAPES = (
    (262_144, 128, 512),
    (1_048_576, 128, 512),
    (1_048_576, 128, 256),
    (1_048_576, 64, 128),
    (4_194_304, 64, 128),
    (1_024, 384, 1536),
    (5_120, 384, 1536),
    (1_024, 768, 1536),
    (5_120, 768, 1536),
)


def calls() -> Found:
    """Find cuswiglu.jax and plain JAX, each under `jax.jit`, and `cuswiglu.swiglu`."""
    found = Found([Contender(AUTO, _own.swiglu)])
    for name, make, reason in (
        (PLAIN, _plain, _jax.why_missing()),
        (OURS, _ours, _jax.why_ours_missing()),
    ):
        if reason:
            found.missing[name] = reason
        else:
            found.contenders.insert(0, Contender(name, make))
    return found


def _ours(inputs: Inputs) -> Runner:
    import cuswiglu.jax

    swiglu = functools.partial(cuswiglu.jax.swiglu, weights="n")
    return _jax.jitted(inputs, swiglu, _as_flax_keeps_them(inputs))


def _plain(inputs: Inputs) -> Runner:
    return _jax.jitted(inputs, _jax.plain_swiglu, _as_flax_keeps_them(inputs))


def _as_flax_keeps_them(inputs: Inputs) -> list[tuple[object, object]]:
    """Copy gate and up of each set to row-major (K, N) arrays."""
    return [(gate.T, up.T) for gate, up in _jax.weights(inputs)]


def floor_us(cell: Cell) -> float:
    """Microseconds that x and the result take at a copy's rate, or all products, if longer."""
    return max(_row_bytes(cell) / COPY_RATE, cell.flops() / FLOPS_RATE)


def _row_bytes(cell: Cell) -> int:
    """Bytes of x and the result."""
    return figures.BF16_BYTES * cell.m * (cell.k + cell.n)


def sets(cell: Cell) -> int:
    """Count sets of weights of which none is found in the L2, or which x and the result outrun."""
    return timing.buffer_sets(max(cell.gate_up_bytes, _row_bytes(cell)))


def over_floor(row: CellRecord, name: str) -> float | None:
    """Divide a contender's time by the floor."""
    time = row.us(name)
    return time / floor_us(row.cell) if time else None


def over_floors(record: Record, name: str) -> list[figures.Ratio]:
    """Collect `over_floor` of every cell that has one."""
    return figures.collected(record, lambda row: over_floor(row, name))


def _floor_column(heading: str, name: str) -> columns.Column:
    def value(record: Record, row: CellRecord) -> float | None:
        return over_floor(row, name)

    return columns.figure(heading, value, "{:.2f}")


SUITE = Suite(
    name="glu",
    about="many rows and small K: gated linear units in JAX, beside tokamax, and in CuPy",
    cells=tuple(Cell(f"{k}x{n}", k, n, m) for m, k, n in SHAPES),
    contenders=(calls, _tokamax.gate_up, _torch.gate_up),
    columns=(
        columns.Column("K x N", 8, lambda record, row: row.cell.model),
        columns.Column("rows", 7, lambda record, row: str(row.cell.m)),
        columns.time(OURS),
        _floor_column("of floor", OURS),
        columns.speed("jax", PLAIN, of=OURS),
        columns.speed("tokamax", _tokamax.NAME, of=OURS),
        columns.time(AUTO, "auto us", width=9),
        columns.kernel(AUTO),
        _floor_column("of floor", AUTO),
        columns.speed("eager", _torch.EAGER),
        columns.speed("compile", _torch.COMPILE),
    ),
    legend=(
        "cuswiglu.jax.swiglu in jax.jit: microseconds, these over the floor (x and the result at "
        "4.3 TB/s, or the products at 750 TFLOP/s, if longer), and speed against plain JAX and "
        "tokamax; auto, cuswiglu.swiglu: the same, against torch"
    ),
    tables={
        "in JAX": lambda record: summaries.speed_table(record, OURS, PLAIN, _tokamax.NAME),
        "in CuPy": lambda record: summaries.speed_table(record, AUTO, _torch.EAGER, _torch.COMPILE),
    },
    method=Method(
        measure=functools.partial(measure, sets=sets),
    ),
)
