"""The paper's claims (Jangda et al., arXiv 2607.02521) beside what a record holds.

The paper measured 20 configurations of Qwen-2.5 0.5B to 72B on an H100; a record has up to 28.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cuswiglu.bench.cells import Cell
from cuswiglu.bench.record import CellRecord, Record
from cuswiglu.bench.report import figures

#: Suites that measure what the paper measured -> whether of whole MLPs, not of gate and up alone.
SUITES = {"paper": False, "quick": False, "mlp": True}
NOT_HERE = "not in this record"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and what was found here; `note` says how it is defined."""

    what: str
    paper: str
    ours: str
    note: str = ""


@dataclass(frozen=True)
class CellClaims:
    """Claims that are made of single cells; None where a contender is missing.

    Attributes
    ----------
    speedup : float or None
        Speed of auto over torch eager's.
    winner : str
        Family of our fastest variant.
    utilisation : float or None
        Share of 989.5 TFLOP/s that auto reaches.
    before, after : float
        Arithmetic intensity, FLOP per byte.
    fusion_efficiency : float or None
        Time of the bare product over auto's: 1 means that the activation costs nothing.
    compile : float or None
        Time of torch.compile over eager's: above 1, it is slower.
    off, eager_off : float or None
        Share of elements off by more than 1% of FP64, of auto and of torch eager.
    """

    cell: Cell
    speedup: float | None
    winner: str
    utilisation: float | None
    before: float
    after: float
    fusion_efficiency: float | None
    compile: float | None
    off: float | None
    eager_off: float | None


def is_whole_mlp(record: Record) -> bool:
    """Tell whether a record is of whole MLPs; claims of single products are not made of it."""
    return SUITES.get(record.suite, False)


def of_cell(row: CellRecord, *, whole_mlp: bool = False) -> CellClaims:
    """Collect the claims of one cell."""
    auto, eager = row.us("auto"), row.us("torch-eager")
    return CellClaims(
        cell=row.cell,
        speedup=_over(eager, auto),
        winner=figures.winning_family(row),
        utilisation=figures.peak_share(row, "auto", whole_mlp=whole_mlp),
        before=figures.intensity(row.cell, fused=False),
        after=figures.intensity(row.cell, fused=True),
        fusion_efficiency=_over(row.us("bare"), auto),
        compile=_over(row.us("torch-compile"), eager),
        off=_off(row, "auto"),
        eager_off=_off(row, "torch-eager"),
    )


def _over(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


def _off(row: CellRecord, name: str) -> float | None:
    return row.outcomes[name].off if name in row.outcomes else None


def claims(record: Record) -> list[Claim]:
    """List every claim of the paper, whether this record can answer it or not."""
    whole_mlp = is_whole_mlp(record)
    rows = [of_cell(row, whole_mlp=whole_mlp) for row in record.cells]
    return [
        _speedup(rows, whole_mlp),
        _winners(record),
        _utilisation(record),
        _share(record),
        _intensity(rows, whole_mlp),
        _efficiency(rows),
        _compile(rows),
        _mismatches(rows, whole_mlp),
    ]


def _span(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Tell the lowest, the highest and the geometric mean of positive values."""
    if not values:
        return NOT_HERE
    low, high, mean = show(min(values)), show(max(values)), show(figures.geomean(values))
    return f"{low} to {high}, geometric mean {mean} ({len(values)} cells)"


def _times(value: float) -> str:
    return f"{value:.2f}x"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _small_percent(value: float) -> str:
    return f"{value:.3%}"


def _speedup(rows: Sequence[CellClaims], whole_mlp: bool) -> Claim:
    found = [row.speedup for row in rows if row.speedup]
    what = "whole MLP" if whole_mlp else "gate and up"
    note = f"auto over torch eager, {what}, both replayed from CUDA graphs"
    return Claim("speed-up over PyTorch eager", "up to 2.47x", _span(found, _times), note)


def _winners(record: Record) -> Claim:
    won = [figures.winning_family(row) for row in record.cells]
    ours = ", ".join(
        f"{_family(family)} {won.count(family)}" for family in figures.families(record)
    )
    if ours:
        ours += f" of {sum(map(bool, won))}"
    paper = "Kernel-2 13, Kernel-1 7 of 20"
    return Claim("cells won", paper, ours or NOT_HERE, "fastest variant of ours in each cell")


def _family(family: str) -> str:
    paper = figures.PAPER_FAMILIES.get(family)
    return f"{paper} ({family})" if paper else family


def _utilisation(record: Record) -> Claim:
    found = figures.utilisation(record, "auto", whole_mlp=is_whole_mlp(record))
    ours = NOT_HERE
    if found:
        top = figures.best(found)
        ours = f"{top.value:.1%} ({top.cell})"
    note = "auto; 989.5 TFLOP/s dense BF16, NVIDIA's datasheet of H100 and H200 SXM"
    return Claim("peak utilisation", "79.5%", ours, note)


def _share(record: Record) -> Claim:
    """Claim the share of the unfused MLP's time that its products alone do not take."""
    shares = []
    for row in record.cells:
        part = _over(row.us("torch-linears"), row.us("torch-eager"))
        if part:
            shares.append(1 - part)
    ours = f"{NOT_HERE}: it takes --suite mlp"
    if shares:
        mean = sum(shares) / len(shares)
        ours = f"{min(shares):.1%} to {max(shares):.1%}, mean {mean:.1%} ({len(shares)} cells)"
    note = "eager's MLP less its three products alone, over eager's MLP"
    return Claim("SwiGLU's share of unfused MLP time", "9% to 37%", ours, note)


def _intensity(rows: Sequence[CellClaims], whole_mlp: bool) -> Claim:
    what = "gain in arithmetic intensity by fusion"
    note = "FLOP/byte with gate and up products in memory and without (figures.intensity)"
    if not rows or whole_mlp:
        return Claim(what, "up to +247%", f"{NOT_HERE}: it takes --suite paper", note)
    top = max(rows, key=lambda row: row.after / row.before)
    gain = top.after / top.before - 1
    ours = f"up to {gain:+.0%} ({top.cell}: {top.before:.0f} to {top.after:.0f})"
    return Claim(what, "up to +247%", ours, note)


def _efficiency(rows: Sequence[CellClaims]) -> Claim:
    found = [row.fusion_efficiency for row in rows if row.fusion_efficiency]
    note = "time of cuBLAS's bare X @ [Wg; Wu]^T over auto's; the paper may define it otherwise"
    return Claim("fusion efficiency", "near or above 100%", _span(found, _percent), note)


def _compile(rows: Sequence[CellClaims]) -> Claim:
    found = [row.compile for row in rows if row.compile]
    note = "time over eager's, default mode, reset for each shape; below 1 it is faster"
    return Claim("torch.compile against eager", "3x to 7x slower", _span(found, _times), note)


def _mismatches(rows: Sequence[CellClaims], whole_mlp: bool) -> Claim:
    ours = NOT_HERE
    fused = [row.off for row in rows if row.off is not None]
    eager = [row.eager_off for row in rows if row.eager_off is not None]
    if fused:
        ours = f"auto {_small_percent(min(fused))} to {_small_percent(max(fused))}"
    if fused and eager:
        ours += f", eager {_small_percent(min(eager))} to {_small_percent(max(eager))}"
    note = "plain FP64 reference, 256 sampled rows; the paper's protocol is not public"
    if whole_mlp:
        note += "; whole MLP, whose intermediate is rounded to BF16"
    paper = "0%, against 4.5% to 11% for cuBLAS"
    return Claim("elements off by more than 1%", paper, ours, note)
