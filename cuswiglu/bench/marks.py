"""The marks that the project set itself, suite by suite, and whether a record meets them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import bandwidth, scaling
from .cells import MODELS, SUITES, Cell
from .figures import (
    COSTS,
    PAPER_FAMILIES,
    QUACK,
    UNFUSED_MLP,
    Ratio,
    against_best_instance,
    best,
    geomean,
    speed,
    utilisation,
    winning_family,
    worst,
)
from .record import CellRecord, Record

#: One BF16 rounding is 2^-9 of each element at most, so of the norm too; FP32 sums add a little.
ONE_ROUNDING = 1.01 * 2**-9
_ALL = len(SUITES["paper"])
#: Token counts of the suite `decode` up to which gate and up are bound by memory alone.
FEW = 64
_LARGE, _SMALL = ("7b", "14b", "32b", "72b"), ("0.5b", "1.5b")


@dataclass(frozen=True)
class Mark:
    """A mark that the project set itself, and what was found.

    Attributes
    ----------
    name : str
    value : str
        What was found, in words.
    must, aim : str
        In words; aim is "-" where there is one mark alone.
    met : str
        "aim", "must" or "missed".
    cells, of : int
        How many of the suite's cells it stands on.
    """

    name: str
    value: str
    must: str
    aim: str
    met: str
    cells: int
    of: int

    @property
    def partial(self) -> bool:
        return self.cells < self.of


def marks(record: Record) -> list[Mark]:
    """Every mark that this record can answer.

    The marks are for all cells of a suite: figures on fewer are partial.
    """
    of_suite = {
        "random": _random,
        "host": _host,
        "decode": _decode,
        "activations": _activations,
        "jax": _jax,
        "tensor-parallel": _tensor_parallel,
        "mlp": _mlp,
    }
    return of_suite.get(record.suite, _paper)(record)


def _random(record: Record) -> list[Mark]:
    ratios = against_best_instance(record)
    if not ratios:
        return []
    mean = geomean(ratio.value for ratio in ratios)
    name = "auto against the best variant, shapes never seen, mean"
    return [_mark(name, mean, _ratio, 0.93, 0.97, ratios, of=len(SUITES["random"]))]


def _mlp(record: Record) -> list[Mark]:
    name = f"whole MLP against {_present(record, UNFUSED_MLP)}"
    return _compared(record, UNFUSED_MLP, name, 1.08, 1.15)


def _paper(record: Record) -> list[Mark]:
    figures = _compared(record, ("bare",), "auto against cuBLAS's bare GEMM", 1.10, 1.15)
    figures += _worst(record, ("bare",))
    figures += _compared(record, QUACK, f"auto against {_present(record, QUACK)}", 1.03, 1.08)
    figures += _worst(record, QUACK)
    eager = speed(record, "auto", ["torch-eager"])
    figures += _compared(record, ["torch-eager"], "auto against torch eager", 1.37, 1.45)
    if eager:
        top = best(eager)
        name = "best cell against torch eager"
        figures.append(_mark(name, top.value, _ratio, 2.0, 2.47, eager, top.cell))
    used = utilisation(record, "auto")
    if used:
        top = best(used)
        name = "best utilisation, of 989.5 TFLOP/s"
        figures.append(_mark(name, top.value, _percent, 0.76, 0.795, used, top.cell))
    return figures + _choice(record) + _paper_kernels(record)


def _host(record: Record) -> list[Mark]:
    """Marks of host time, in the worst cell."""
    of = len(SUITES["host"])
    found = []
    over = speed(record, "bare-launches", ["planned"])
    if over:
        high = best(over)
        met = "aim" if high.value <= 1.2 else "must" if high.value <= 1.6 else "missed"
        name = "host time of a planned call over its bare launches"
        value = f"{high.value:.2f} ({high.cell})"
        found.append(Mark(name, value, "at most 1.60", "at most 1.20", met, len(over), of))
    ratios = speed(record, "unplanned", ["torch-eager"])
    if ratios:
        low = worst(ratios)
        name = "host time of torch eager's MLP over an unplanned call's"
        found.append(_mark(name, low.value, _ratio, 3.0, 6.0, ratios, low.cell, of))
    return found


def _activations(record: Record) -> list[Mark]:
    """Marks of what other activations and biases take, in their worst cells; geometric means."""
    found = []
    for name in COSTS:
        over = speed(record, "silu", [name])
        if not over:
            continue
        high, mean = best(over), geomean(ratio.value for ratio in over)
        met = "must" if high.value <= 1.01 else "missed"
        value = f"{high.value:.3f} ({high.cell}), mean {mean:.3f}"
        what = f"time of {name} over silu's, worst cell"
        of = len(SUITES["activations"])
        found.append(Mark(what, value, "at most 1.010", "-", met, len(over), of))
    return found


def _jax(record: Record) -> list[Mark]:
    """Marks of a jitted stack, each cell's own."""
    found, of = [], len(SUITES["jax"])
    for ratio in speed(record, "cuswiglu-jax", ["jax"]):
        must = 1.4 if ratio.cell.m > FEW else 1.5
        name = f"a jitted stack against plain JAX's, M = {ratio.cell.m}"
        found.append(_at_least(name, ratio, must, 1, 1))
    over = speed(record, "captured", ["cuswiglu-jax"])
    if over:
        high = best(over)
        met = "must" if high.value <= 1.03 else "missed"
        name = "time of the jitted stack over the captured one's, worst cell"
        value = f"{high.value:.3f} ({high.cell})"
        found.append(Mark(name, value, "at most 1.030", "-", met, len(over), of))
    return found


def _tensor_parallel(record: Record) -> list[Mark]:
    """Marks of more GPUs than one."""
    found, cells, of = [], [], len(SUITES["tensor-parallel"])
    for row in record.cells:
        one = scaling.scaling(row, scaling.OURS)
        if one.gpus == 1:
            continue
        if one.speedup and one.gpus == 2 and (row.cell.model, row.cell.m) == ("72b", 4096):
            ratio = Ratio(row.cell, one.speedup)
            found.append(_at_least("72B at M = 4096 on two GPUs, against one", ratio, 1.7, 1, 1))
        if value := scaling.speed(row, gpus=one.gpus):
            cells.append(Ratio(row.cell, value))
    if cells:
        name = "on all GPUs, against plain JAX there, worst cell"
        found.append(_at_least(name, worst(cells), 1.0, len(cells), of))
    return found


def _at_least(name: str, ratio: Ratio, must: float, cells: int, of: int) -> Mark:
    met = "must" if ratio.value >= must else "missed"
    return Mark(name, f"{ratio.value:.3f} ({ratio.cell})", f"{must:.2f}", "-", met, cells, of)


def _decode(record: Record) -> list[Mark]:
    """Marks of few tokens: M up to `FEW`, and above it."""
    bare = speed(record, bandwidth.OURS, [bandwidth.BARE])
    name = f"gate and up against cuBLAS's bare GEMM, M <= {FEW}"
    found = _mean_of(bare, name, 1.08, 1.15, _few())
    found += _worst_of(bare, "its worst cell", 0.98, 1.02, _few())
    shares = [Ratio(row.cell, value) for row, value in bandwidth.shares(record)]
    name = f"bandwidth of gate and up over a copy's, M <= {FEW}"
    for whose, models, must, aim in (
        ("7B to 72B", _LARGE, 0.92, 0.97),
        ("0.5B and 1.5B", _SMALL, 0.70, 0.85),
    ):
        for figure in _mean_of(shares, f"{name}, {whose}", must, aim, _few(models), _percent):
            low = worst([ratio for ratio in shares if ratio.cell in _few(models)])
            value = f"{figure.value}, worst {low.value:.1%} ({low.cell})"
            found.append(dataclasses.replace(figure, value=value))
    whole = speed(record, bandwidth.MLP, UNFUSED_MLP)
    name = f"whole MLP against {_present(record, UNFUSED_MLP)}"
    found += _mean_of(whole, f"{name}, M <= {FEW}", 1.18, 1.28, _few())
    one = [cell for cell in _few(["0.5b"]) if cell.m == 1]
    found += _worst_of(whole, "the same, 0.5B at M = 1", 1.5, 2.0, one)
    more = [cell for cell in SUITES["decode"] if cell.m > FEW]
    name = f"gate and up against cuBLAS's bare GEMM, M > {FEW}, worst cell"
    return found + _worst_of(bare, name, 0.97, 1.00, more)


def _few(models: Sequence[str] = MODELS) -> list[Cell]:
    """Cells of few tokens, of some models."""
    return [cell for cell in SUITES["decode"] if cell.m <= FEW and cell.model in models]


def _mean_of(
    ratios: Sequence[Ratio],
    name: str,
    must: float,
    aim: float,
    cells: Sequence[Cell],
    show: Callable[[float], str] | None = None,
) -> list[Mark]:
    """The geometric mean of those ratios that are of these cells, if there are any."""
    there = [ratio for ratio in ratios if ratio.cell in cells]
    if not there:
        return []
    mean, name = geomean(ratio.value for ratio in there), f"{name}, geometric mean"
    return [_mark(name, mean, show or _ratio, must, aim, there, of=len(cells))]


def _worst_of(
    ratios: Sequence[Ratio], name: str, must: float, aim: float, cells: Sequence[Cell]
) -> list[Mark]:
    """The lowest of those ratios that are of these cells, if there are any."""
    there = [ratio for ratio in ratios if ratio.cell in cells]
    if not there:
        return []
    low = worst(there)
    return [_mark(name, low.value, _ratio, must, aim, there, low.cell, len(cells))]


def _present(record: Record, names: Sequence[str]) -> str:
    """Those of some contenders that were timed at all, in words."""
    there = [name for name in names if any(row.us(name) for row in record.cells)]
    return there[0] if len(there) == 1 else f"the best of {', '.join(there)}"


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _mark(
    name: str,
    value: float,
    show: Callable[[float], str],
    must: float,
    aim: float,
    ratios: Sequence[Ratio],
    cell: Cell | None = None,
    of: int = _ALL,
) -> Mark:
    met = "aim" if value >= aim else "must" if value >= must else "missed"
    where = f" ({cell})" if cell else ""
    return Mark(name, show(value) + where, show(must), show(aim), met, len(ratios), of)


def _compared(
    record: Record, against: Sequence[str], name: str, must: float, aim: float
) -> list[Mark]:
    ratios = speed(record, "auto", against)
    if not ratios:
        return []
    mean = geomean(ratio.value for ratio in ratios)
    return [_mark(f"{name}, geometric mean", mean, _ratio, must, aim, ratios)]


def _worst(record: Record, against: Sequence[str]) -> list[Mark]:
    ratios = speed(record, "auto", against)
    if not ratios:
        return []
    low = worst(ratios)
    return [_mark("its worst cell", low.value, _ratio, 0.97, 1.00, ratios, low.cell)]


def _choice(record: Record) -> list[Mark]:
    """Must: 0.97 of the best variant in 26 of 28 cells; aim: in all."""
    ratios = against_best_instance(record)
    if not ratios:
        return []
    good = sum(ratio.value >= 0.97 for ratio in ratios)
    needed = len(ratios) - len(ratios) * 2 // _ALL
    met = "aim" if good == len(ratios) else "must" if good >= needed else "missed"
    low = worst(ratios)
    return [
        Mark(
            "auto within 0.97 of the best variant",
            f"{good} of {len(ratios)} cells (worst {low.value:.3f}, {low.cell})",
            f"{needed} of {len(ratios)}",
            "all",
            met,
            len(ratios),
            _ALL,
        )
    ]


def _paper_kernels(record: Record) -> list[Mark]:
    """Must: both measured in every cell, exact to the contract; aim: each wins somewhere."""
    rows = record.cells
    if not rows:
        return []
    wins = {family: sum(winning_family(row) == family for row in rows) for family in PAPER_FAMILIES}
    exact = {family: sum(_exact(row, family) for row in rows) for family in PAPER_FAMILIES}
    must = all(count == len(rows) for count in exact.values())
    value = "; ".join(
        f"{PAPER_FAMILIES[family]} ({family}) measured and exact in {exact[family]}, "
        f"wins {wins[family]} of {len(rows)}"
        for family in PAPER_FAMILIES
    )
    met = "missed" if not must else "aim" if all(wins.values()) else "must"
    name = "Kernel-1 and Kernel-2"
    return [Mark(name, value, "every cell, exact", "each wins", met, len(rows), _ALL)]


def _exact(row: CellRecord, family: str) -> bool:
    """Whether a family was timed in a cell, and all its results are one rounding from FP64."""
    found = [outcome for outcome in row.instances().values() if outcome.family == family]
    return bool(found) and all(
        outcome.relative_error is not None and outcome.relative_error <= ONE_ROUNDING
        for outcome in found
    )
