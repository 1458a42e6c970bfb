"""Figures: what a record's cells come to, and the marks that the project set itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from . import bandwidth, fp64
from .cells import MODELS, SUITES, Cell, flops
from .record import CellRecord, Record

#: Dense BF16 without sparsity, in FLOP/s: NVIDIA H100 and H200 SXM datasheets.
PEAK_FLOPS = 989.5e12
QUACK = ("quack", "quack-default")
UNFUSED_MLP = ("torch-eager", "torch-compile", "fused")
#: Who is timed in the suite `host`.
HOST = (
    "planned",
    "captured",
    "unplanned",
    "unplanned-swiglu",
    "bare-launches",
    "torch-eager",
    "cupy-matmul",
)
#: Of the suite `activations`, whose time over `silu`'s is marked; `float16`'s is shown alone, as
#: other bits take other power.
COSTS = (*fp64.ACTIVATIONS, "biased")
#: The paper's two kernels.
PAPER_FAMILIES = {"sync": "Kernel-1", "interleave": "Kernel-2"}
#: One BF16 rounding is 2^-9 of each element at most, so of the norm too; FP32 sums add a little.
ONE_ROUNDING = 1.01 * 2**-9
_ALL = len(SUITES["paper"])
#: Token counts of the suite `decode` up to which gate and up are bound by memory alone.
FEW = 64
_LARGE, _SMALL = ("7b", "14b", "32b", "72b"), ("0.5b", "1.5b")


def geomean(values: Iterable[float]) -> float:
    """Geometric mean; NaN of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as something a contender is, in one cell."""

    cell: Cell
    value: float


def speed(record: Record, name: str, against: Sequence[str]) -> list[Ratio]:
    """Speed of a contender against the fastest of others, in every cell that has both."""
    ratios = []
    for row in record.cells:
        ours, theirs = row.us(name), row.us(*against)
        if ours and theirs:
            ratios.append(Ratio(row.cell, theirs / ours))
    return ratios


def worst(ratios: Sequence[Ratio]) -> Ratio:
    return min(ratios, key=lambda ratio: ratio.value)


def best(ratios: Sequence[Ratio]) -> Ratio:
    return max(ratios, key=lambda ratio: ratio.value)


def best_instance(row: CellRecord, family: str = "") -> tuple[str, float] | None:
    """Our fastest instance in a cell, of one family or of all, and its microseconds."""
    times = {
        name: outcome.microseconds
        for name, outcome in row.instances().items()
        if outcome.microseconds and family in ("", outcome.family)
    }
    return min(times.items(), key=lambda item: item[1]) if times else None


def winning_family(row: CellRecord) -> str:
    """The family of our fastest instance, or an empty string."""
    found = best_instance(row)
    return row.outcomes[found[0]].family if found else ""


def families(record: Record) -> list[str]:
    """Every family that was timed, the paper's first."""
    seen = {outcome.family for row in record.cells for outcome in row.instances().values()}
    return [*(f for f in PAPER_FAMILIES if f in seen), *sorted(seen - set(PAPER_FAMILIES))]


def against_best_instance(record: Record) -> list[Ratio]:
    """Speed of auto against our fastest instance of each cell: 1 if the choice was right."""
    ratios = []
    for row in record.cells:
        found, ours = best_instance(row), row.us("auto")
        if found and ours:
            ratios.append(Ratio(row.cell, found[1] / ours))
    return ratios


def utilisation(record: Record, *names: str) -> list[Ratio]:
    """Share of `PEAK_FLOPS` that the fastest of some contenders reaches in each cell."""
    ratios = []
    for row in record.cells:
        time = row.us(*names)
        if time:
            rate = flops(record.suite, row.cell) / (time * 1e-6)
            ratios.append(Ratio(row.cell, rate / PEAK_FLOPS))
    return ratios


@dataclass(frozen=True)
class Figure:
    """A mark, and what was found.

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


def shows(record: Record) -> list[Figure]:
    """Every mark that this record can answer.

    The marks are for all cells of a suite: figures on fewer are partial.
    """
    if record.suite in ("jax", "tensor-parallel"):
        return []  # no mark is set
    if record.suite == "random":
        ratios = against_best_instance(record)
        if not ratios:
            return []
        mean = geomean(ratio.value for ratio in ratios)
        name = "auto against the best variant, shapes never seen, mean"
        return [_figure(name, mean, _ratio, 0.93, 0.97, ratios, of=len(SUITES["random"]))]
    if record.suite == "host":
        return _host(record)
    if record.suite == "decode":
        return _decode(record)
    if record.suite == "activations":
        return _activations(record)
    if record.suite == "mlp":
        name = f"whole MLP against {_present(record, UNFUSED_MLP)}"
        return _compared(record, UNFUSED_MLP, name, 1.08, 1.15)
    figures = _compared(record, ("bare",), "auto against cuBLAS's bare GEMM", 1.10, 1.15)
    figures += _worst(record, ("bare",))
    figures += _compared(record, QUACK, f"auto against {_present(record, QUACK)}", 1.03, 1.08)
    figures += _worst(record, QUACK)
    eager = speed(record, "auto", ["torch-eager"])
    figures += _compared(record, ["torch-eager"], "auto against torch eager", 1.37, 1.45)
    if eager:
        top = best(eager)
        name = "best cell against torch eager"
        figures.append(_figure(name, top.value, _ratio, 2.0, 2.47, eager, top.cell))
    used = utilisation(record, "auto")
    if used:
        top = best(used)
        name = "best utilisation, of 989.5 TFLOP/s"
        figures.append(_figure(name, top.value, _percent, 0.76, 0.795, used, top.cell))
    return figures + _choice(record) + _paper_kernels(record)


def _host(record: Record) -> list[Figure]:
    """Marks of host time, in the worst cell."""
    of = len(SUITES["host"])
    found = []
    over = speed(record, "bare-launches", ["planned"])
    if over:
        high = best(over)
        met = "aim" if high.value <= 1.2 else "must" if high.value <= 1.6 else "missed"
        name = "host time of a planned call over its bare launches"
        value = f"{high.value:.2f} ({high.cell})"
        found.append(Figure(name, value, "at most 1.60", "at most 1.20", met, len(over), of))
    ratios = speed(record, "unplanned", ["torch-eager"])
    if ratios:
        low = worst(ratios)
        name = "host time of torch eager's MLP over an unplanned call's"
        found.append(_figure(name, low.value, _ratio, 3.0, 6.0, ratios, low.cell, of))
    return found


def _activations(record: Record) -> list[Figure]:
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
        found.append(Figure(what, value, "at most 1.010", "-", met, len(over), of))
    return found


def _decode(record: Record) -> list[Figure]:
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
) -> list[Figure]:
    """The geometric mean of those ratios that are of these cells, if there are any."""
    there = [ratio for ratio in ratios if ratio.cell in cells]
    if not there:
        return []
    mean, name = geomean(ratio.value for ratio in there), f"{name}, geometric mean"
    return [_figure(name, mean, show or _ratio, must, aim, there, of=len(cells))]


def _worst_of(
    ratios: Sequence[Ratio], name: str, must: float, aim: float, cells: Sequence[Cell]
) -> list[Figure]:
    """The lowest of those ratios that are of these cells, if there are any."""
    there = [ratio for ratio in ratios if ratio.cell in cells]
    if not there:
        return []
    low = worst(there)
    return [_figure(name, low.value, _ratio, must, aim, there, low.cell, len(cells))]


def _present(record: Record, names: Sequence[str]) -> str:
    """Those of some contenders that were timed at all, in words."""
    there = [name for name in names if any(row.us(name) for row in record.cells)]
    return there[0] if len(there) == 1 else f"the best of {', '.join(there)}"


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _figure(
    name: str,
    value: float,
    show: Callable[[float], str],
    must: float,
    aim: float,
    ratios: Sequence[Ratio],
    cell: Cell | None = None,
    of: int = _ALL,
) -> Figure:
    met = "aim" if value >= aim else "must" if value >= must else "missed"
    where = f" ({cell})" if cell else ""
    return Figure(name, show(value) + where, show(must), show(aim), met, len(ratios), of)


def _compared(
    record: Record, against: Sequence[str], name: str, must: float, aim: float
) -> list[Figure]:
    ratios = speed(record, "auto", against)
    if not ratios:
        return []
    mean = geomean(ratio.value for ratio in ratios)
    return [_figure(f"{name}, geometric mean", mean, _ratio, must, aim, ratios)]


def _worst(record: Record, against: Sequence[str]) -> list[Figure]:
    ratios = speed(record, "auto", against)
    if not ratios:
        return []
    low = worst(ratios)
    return [_figure("its worst cell", low.value, _ratio, 0.97, 1.00, ratios, low.cell)]


def _choice(record: Record) -> list[Figure]:
    """Must: 0.97 of the best variant in 26 of 28 cells; aim: in all."""
    ratios = against_best_instance(record)
    if not ratios:
        return []
    good = sum(ratio.value >= 0.97 for ratio in ratios)
    needed = len(ratios) - len(ratios) * 2 // _ALL
    met = "aim" if good == len(ratios) else "must" if good >= needed else "missed"
    low = worst(ratios)
    return [
        Figure(
            "auto within 0.97 of the best variant",
            f"{good} of {len(ratios)} cells (worst {low.value:.3f}, {low.cell})",
            f"{needed} of {len(ratios)}",
            "all",
            met,
            len(ratios),
            _ALL,
        )
    ]


def _paper_kernels(record: Record) -> list[Figure]:
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
    return [Figure(name, value, "every cell, exact", "each wins", met, len(rows), _ALL)]


def _exact(row: CellRecord, family: str) -> bool:
    """Whether a family was timed in a cell, and all its results are one rounding from FP64."""
    found = [outcome for outcome in row.instances().values() if outcome.family == family]
    return bool(found) and all(
        outcome.relative_error is not None and outcome.relative_error <= ONE_ROUNDING
        for outcome in found
    )
