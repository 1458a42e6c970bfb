"""Suite `tensor-parallel`: each layer of a stack cut over several GPUs, in JAX.

The contenders are `cuswiglu.jax.mlp` and plain JAX, on one GPU and on all, and there also without
the sum that ends each layer, which tells what it costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ... import environment
from ..cells import Cell, cell
from ..contenders import _jax_parallel
from ..contenders._jax_parallel import OURS, PLAIN, name
from ..record import CellRecord, Record, Session
from ..report import columns, plots
from ..run import machine, parallel
from ..run.run import Method
from .base import Suite


def _gpu() -> str:
    return machine.bus_id() if environment.collect().gpus else ""


def _session(gpu: str) -> Session:
    """Look at the machine, and at all of JAX's devices."""
    import jax

    session = machine.session(gpu)
    devices = [str(getattr(device, "device_kind", device)) for device in jax.local_devices()]
    return replace(session, gpu=session.gpu | {"devices": devices})


@dataclass(frozen=True)
class Scaling:
    """One contender in one cell: microseconds of a layer, None where there is no time.

    Attributes
    ----------
    gpus : int
        GPUs that took part.
    one, every : float or None
        Time on one GPU, and on all.
    unsummed : float or None
        Time on all, without the sum.
    """

    cell: Cell
    gpus: int
    one: float | None
    every: float | None
    unsummed: float | None

    @property
    def speedup(self) -> float | None:
        """Speed of all GPUs over one's."""
        return self.one / self.every if self.one and self.every else None

    @property
    def share(self) -> float | None:
        """Share of the time on all GPUs that the sum takes."""
        return 1 - self.unsummed / self.every if self.unsummed and self.every else None


def scaling(row: CellRecord, who: str) -> Scaling:
    """Collect a contender's times in a cell; on a single GPU, `every` is `one`."""
    gpus = max([1, *(int(key.split("@")[1].split("-")[0]) for key in row.outcomes if "@" in key)])
    names = name(who, 1), name(who, gpus), name(who, gpus, summed=False)
    return Scaling(row.cell, gpus, *map(row.us, names))


def speed(row: CellRecord, *, gpus: int) -> float | None:
    """Compare ours with plain JAX, on so many GPUs."""
    ours, plain = (row.us(name(who, gpus)) for who in (OURS, PLAIN))
    return plain / ours if ours and plain else None


def speedups(record: Record, who: str) -> dict[Cell, float]:
    """Collect the speed-up of a contender in each cell that has one, on more GPUs than one."""
    found = {row.cell: scaling(row, who) for row in record.cells}
    return {cell: one.speedup for cell, one in found.items() if one.gpus > 1 and one.speedup}


def speedup_plot(record: Record) -> Any:
    """Draw the speed-up of all GPUs over one, and the sum's share, ours and plain JAX's."""
    ours = speedups(record, OURS)
    if not ours:
        return None
    rows = {row.cell: row for row in record.cells}
    gpus = scaling(rows[next(iter(ours))], OURS).gpus
    figure, axes = plots.new(
        9.0,
        4.6,
        f"Tensor parallelism: {gpus} GPUs over one, and the sum's share of their time",
        record,
    )
    bars = (("cuswiglu.jax", OURS, plots.COLOURS["dual"]), ("plain JAX", PLAIN, plots.OTHER))
    for index, (label, who, colour) in enumerate(bars):
        found = speedups(record, who)
        places = [place for place, cell in enumerate(ours) if cell in found]
        heights = [found[cell] for cell in ours if cell in found]
        drawn = axes.bar([x + 0.4 * index - 0.2 for x in places], heights, 0.38, color=colour)
        drawn.set_label(label)
        shares = [scaling(rows[cell], who).share for cell in ours if cell in found]
        texts = ["" if share is None else f"{share:.0%}" for share in shares]
        axes.bar_label(drawn, texts, fontsize=8)
    axes.axhline(gpus, color=plots.INK, linewidth=1)
    axes.set_xticks(range(len(ours)), [f"{cell.model.upper()}\nM = {cell.m}" for cell in ours])
    axes.set_ylabel("speed-up over one GPU")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def _of(who: str, figure: str) -> Callable[[Record, CellRecord], float | None]:
    """Give a figure of a contender, for a column."""
    return lambda record, row: getattr(scaling(row, who), figure)


def _gpus(row: CellRecord) -> int:
    return scaling(row, OURS).gpus


SUITE = Suite(
    name="tensor-parallel",
    about="layers cut over all GPUs, in JAX",
    cells=tuple(cell(model, m) for model in ("7b", "32b", "72b") for m in (16, 512, 4096)),
    contenders=(_jax_parallel.programs,),
    columns=(
        *columns.CELL,
        columns.Column("GPUs", 4, lambda record, row: str(_gpus(row))),
        columns.figure("ours, 1", _of(OURS, "one"), "{:.1f}"),
        columns.figure("jax, 1", _of(PLAIN, "one"), "{:.1f}"),
        columns.figure("ours, all", _of(OURS, "every"), "{:.1f}"),
        columns.figure("jax, all", _of(PLAIN, "every"), "{:.1f}"),
        columns.figure("speed, 1", lambda record, row: speed(row, gpus=1), "{:.3f}"),
        columns.figure("all", lambda record, row: speed(row, gpus=_gpus(row)), "{:.3f}"),
        columns.figure("speed-up", _of(OURS, "speedup"), "{:.2f}"),
        columns.figure("jax's", _of(PLAIN, "speedup"), "{:.2f}"),
        columns.figure("sum", _of(OURS, "share"), "{:.1%}"),
        columns.figure("jax's", _of(PLAIN, "share"), "{:.1%}"),
    ),
    legend=(
        "microseconds of a layer, x + mlp(x), ours and plain JAX's; our speed against plain "
        "JAX; speed-up over one GPU; share of the sum over the GPUs"
    ),
    plots={"scaling": speedup_plot},
    method=Method(measure=parallel.measure, session=_session, gpu=_gpu),
)
