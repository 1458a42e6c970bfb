"""Plots of a record: speed-up, roofline, utilisation, winners; and what suites draw theirs with."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...common import files
from ..cells import MODELS, TOKENS, Cell
from ..record import CellRecord, Record
from . import figures

#: Memory bandwidth in B/s by nvidia-smi's name: NVIDIA's datasheets of the SXM parts.
BANDWIDTHS = {"NVIDIA H200": 4.8e12, "NVIDIA H100 80GB HBM3": 3.35e12}
COLOURS = {"sync": "#b5533c", "interleave": "#a67c00", "dual": "#3f7cac", "decode": "#4f7a54"}
OTHER = "#8a8a8a"
INK = "#222222"


def matplotlib_modules() -> Any:
    """Load matplotlib, drawing to files.

    Raises
    ------
    ImportError
    """
    try:
        import matplotlib
        import matplotlib.figure
        import matplotlib.patches
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'cuswiglu[notebooks]'") from error
    return matplotlib


def draw(record: Record, plots: Mapping[str, Callable[[Record], Any]], folder: Path) -> list[Path]:
    """Draw those of a suite's plots that the record can show, as PNG; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {name: plot(record) for name, plot in plots.items()}
    return [
        save(figure, folder / f"{record.suite}_{name}.png")
        for name, figure in drawn.items()
        if figure is not None
    ]


def save(figure: Any, path: Path) -> Path:
    """Write a figure as PNG; give the path back."""
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format="png")
    files.atomic_write(path, picture.getvalue())
    return path


def new(width: float, height: float, title: str, record: Record) -> tuple[Any, Any]:
    """Make a figure with one set of axes, its title with the GPU's name."""
    figure = matplotlib_modules().figure.Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    gpu = record.sessions[-1].gpu.get("name", "") if record.sessions else ""
    axes.set_title(f"{title}\n{gpu}".strip(), fontsize=11, loc="left", color=INK)
    return figure, axes


def _grid(axes: Any, record: Record) -> tuple[list[str], list[int]]:
    """Put models down and tokens across, with their labels."""
    models = [model for model in MODELS if any(row.cell.model == model for row in record.cells)]
    tokens = [m for m in TOKENS if any(row.cell.m == m for row in record.cells)]
    axes.set_xticks(range(len(tokens)), [str(m) for m in tokens])
    axes.set_yticks(range(len(models)), [model.upper() for model in models])
    axes.set_xlim(-0.5, len(tokens) - 0.5)
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.set_xlabel("tokens (M)")
    axes.set_ylabel("Qwen-2.5")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return models, tokens


def _heat_map(
    record: Record,
    title: str,
    values: Mapping[Cell, float],
    show: Callable[[float], str],
    limits: tuple[float, float],
    colours: str,
) -> Any:
    if not values:
        return None
    figure, axes = new(6.4, 5.2, title, record)
    models, tokens = _grid(axes, record)
    low, high = limits
    table = [[float("nan")] * len(tokens) for _ in models]
    for cell, value in values.items():
        table[models.index(cell.model)][tokens.index(cell.m)] = value
    axes.imshow(table, cmap=colours, vmin=low, vmax=high, aspect="auto")
    for cell, value in values.items():
        dark = (value - low) / (high - low) > 0.55
        axes.text(
            tokens.index(cell.m),
            models.index(cell.model),
            show(value),
            ha="center",
            va="center",
            color="white" if dark else INK,
        )
    return figure


def speedup(record: Record, what: str) -> Any:
    """Draw a heat map of auto's speed-up over torch eager."""
    found = figures.speed(record, "auto", ["torch-eager"])
    values = {ratio.cell: ratio.value for ratio in found}
    title = f"Speed-up over PyTorch eager, {what}"
    high = max(2.0, *values.values()) if values else 2.0
    return _heat_map(record, title, values, lambda value: f"{value:.2f}x", (1.0, high), "Blues")


def utilisation(record: Record, *, whole_mlp: bool = False) -> Any:
    """Draw a heat map of the share of peak that auto reaches."""
    found = figures.utilisation(record, "auto", whole_mlp=whole_mlp)
    values = {ratio.cell: ratio.value for ratio in found}
    title = "Utilisation: share of 989.5 TFLOP/s dense BF16"
    return _heat_map(record, title, values, lambda value: f"{value:.1%}", (0.3, 0.9), "Greens")


def winners(record: Record) -> Any:
    """Draw which variant is fastest in each cell, in its family's colour."""
    rows = [row for row in record.cells if figures.winning_family(row)]
    if not rows:
        return None
    figure, axes = new(8.4, 5.2, "Fastest kernel of each cell", record)
    models, tokens = _grid(axes, record)
    patches = matplotlib_modules().patches
    for row in rows:
        x, y = tokens.index(row.cell.m), models.index(row.cell.model)
        family, text = _winner(row)
        colour = COLOURS.get(family, OTHER)
        axes.add_patch(patches.Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, color=colour))
        axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white")
    keys = [
        patches.Patch(color=COLOURS.get(family, OTHER), label=_named(family))
        for family in figures.families(record)
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return figure


def _winner(row: CellRecord) -> tuple[str, str]:
    """Split a variant into family, and lines that fit into a square."""
    found = figures.best_variant(row)
    assert found is not None
    family, _, rest = found[0].partition("_")
    return row.outcomes[found[0]].family, f"{family}\n{rest.replace('_', chr(10), 1)}"


def _named(family: str) -> str:
    paper = figures.PAPER_FAMILIES.get(family)
    return f"{family} (the paper's {paper})" if paper else family


def roofline(record: Record) -> Any:
    """Draw each cell before fusion (torch eager) and after (auto), under the chip's ceilings."""
    ends = [ends for row in record.cells if (ends := _ends(row))]
    if not ends:
        return None
    figure, axes = new(9.0, 5.6, "Roofline: gate and up before and after fusion", record)
    peak = figures.PEAK_FLOPS / 1e12
    left, right = min(end[0][0] for end in ends) / 1.3, max(end[1][0] for end in ends) * 1.3
    axes.axhline(peak, color=INK, linewidth=1)
    axes.annotate(
        f"{peak} TFLOP/s dense BF16", (right, peak), (-4, 4), textcoords="offset points", ha="right"
    )
    bandwidth = _bandwidth(record)
    low = min(end[0][1] for end in ends) / 1.2
    if bandwidth:
        ridge = figures.PEAK_FLOPS / bandwidth
        left = min(left, ridge / 1.6)
        x = [left, ridge]
        axes.plot(x, [value * bandwidth / 1e12 for value in x], color=INK, linewidth=1)
        axes.annotate(
            f"{bandwidth / 1e12:.2f} TB/s\n(datasheet)",
            (ridge, peak),
            (6, -34),
            textcoords="offset points",
        )
    for before, after in ends:
        axes.annotate(
            "", after, before, arrowprops={"arrowstyle": "-", "color": "#bbbbbb", "linewidth": 0.8}
        )
    for index, (label, colour) in enumerate((("torch eager", OTHER), ("auto", COLOURS["dual"]))):
        points = [end[index] for end in ends]
        axes.scatter(*zip(*points, strict=True), s=26, color=colour, label=label, zorder=3)
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, peak * 1.15))
    _plain_ticks(axes.xaxis, (100, 200, 300, 500, 700, 1000, 2000, 3000, 5000))
    _plain_ticks(axes.yaxis, (10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800))
    axes.set_xlabel("arithmetic intensity, FLOP/byte: with and without gate and up in memory")
    axes.set_ylabel("TFLOP/s")
    axes.legend(loc="lower right", frameon=False)
    return figure


def by_tokens(record: Record, title: str, what: str, ratios: Sequence[figures.Ratio]) -> Any:
    """Draw ratios by M, a line for each model."""
    if not ratios:
        return None
    figure, axes = new(8.4, 5.0, title, record)
    colours = matplotlib_modules().colormaps["viridis"]
    for index, model in enumerate(MODELS):
        points = sorted((one.cell.m, one.value) for one in ratios if one.cell.model == model)
        if points:
            colour = colours(0.95 * index / (len(MODELS) - 1))
            axes.plot(*zip(*points, strict=True), "o-", color=colour, label=model.upper())
    axes.axhline(1, color=INK, linewidth=1)
    axes.set_xscale("log", base=2)
    _plain_ticks(axes.xaxis, sorted({ratio.cell.m for ratio in ratios}))
    axes.set_xlabel("tokens (M)")
    axes.set_ylabel(what)
    figure.legend(loc="outside lower center", ncols=len(MODELS), frameon=False)
    return figure


def _plain_ticks(axis: Any, values: Sequence[int]) -> None:
    """Write numbers as they are spoken, in place of powers of ten."""
    low, high = axis.get_view_interval()
    shown = [value for value in values if low <= value <= high]
    axis.set_ticks(shown, [str(value) for value in shown])
    axis.set_ticks([], minor=True)


def _ends(row: CellRecord) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Compute (intensity, TFLOP/s) of torch eager and of auto."""
    eager, auto = row.us("torch-eager"), row.us("auto")
    if not eager or not auto:
        return None
    work = row.cell.flops() / 1e6
    before, after = (figures.intensity(row.cell, fused=fused) for fused in (False, True))
    return (before, work / eager), (after, work / auto)


def _bandwidth(record: Record) -> float | None:
    return BANDWIDTHS.get(record.sessions[-1].gpu.get("name", "")) if record.sessions else None
