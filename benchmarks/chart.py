"""`python -m benchmarks.chart`: README's chart, drawn from the kept records alone.

A bar is the geometric mean over a record's cells, the line through it goes from the worst cell to
the best. The same records and matplotlib give the same file.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuswiglu.bench.record import Record, load
from cuswiglu.bench.report import figures
from cuswiglu.bench.report.figures import Ratio
from cuswiglu.bench.report.plots import INK, matplotlib_modules

RESULTS = Path(__file__).parent.parent / "notebooks" / "results"
NAME = "speed.svg"
SUITES = ("paper", "mlp", "decode")
TITLE = "How many times as fast cuswiglu is"
_BAR, _LINE = "#8fa9bd", "#111111"
#: Packages of the peers, whose versions stand below the chart.
_PACKAGES = ("torch", "quack-kernels", "nvidia-cublas")
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "cuswiglu", "font.family": "sans-serif"}


@dataclass(frozen=True)
class Bar:
    """Speed of a contender of ours against another, in the cells of a suite's record."""

    label: str
    suite: str
    ours: str
    others: tuple[str, ...]


_COMPILE, _EAGER = ("torch-compile",), ("torch-eager",)
GROUPS = {
    "Gate and up, M = 512 to 4096": (
        Bar("cuBLAS's bare product, no activation", "paper", "auto", ("bare",)),
        Bar("QuACK", "paper", "auto", figures.QUACK),
        Bar("torch.compile", "paper", "auto", _COMPILE),
        Bar("PyTorch eager", "paper", "auto", _EAGER),
    ),
    "Whole MLP, M = 512 to 4096": (
        Bar("torch.compile", "mlp", "auto", _COMPILE),
        Bar("PyTorch eager", "mlp", "auto", _EAGER),
    ),
    "Whole MLP of few tokens, M = 1 to 256": (
        Bar("torch.compile", "decode", "mlp", _COMPILE),
        Bar("PyTorch eager", "decode", "mlp", _EAGER),
    ),
}


def ratios(bar: Bar, records: dict[str, Record]) -> list[Ratio]:
    """Compare ours with the faster of the others in each cell.

    Raises
    ------
    ValueError
        If the record has no cell with both.
    """
    found = figures.speed(records[bar.suite], bar.ours, bar.others)
    if not found:
        raise ValueError(f"the record of suite {bar.suite} has no {' or '.join(bar.others)}")
    return found


def draw(records: dict[str, Record]) -> bytes:
    """Draw the chart as SVG, from the records of `SUITES` by name."""
    matplotlib = matplotlib_modules()
    with matplotlib.rc_context(_STYLE):
        figure = matplotlib.figure.Figure(figsize=(8.6, 4.5), layout="constrained")
        _bars(figure.subplots(), records)
        figure.suptitle(TITLE, x=0.01, ha="left", fontsize=13, color=INK)
        figure.supxlabel(_made_of(records), x=0.01, ha="left", fontsize=8, color=INK)
        picture = io.BytesIO()
        metadata = {"Date": None, "Creator": None, "Title": TITLE}
        figure.savefig(picture, format="svg", metadata=metadata, facecolor="white")
    return picture.getvalue()


def _bars(axes: Any, records: dict[str, Record]) -> None:
    place, longest, ticks = 0.0, 0.0, {}
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    for group, bars in GROUPS.items():
        axes.text(0.02, place, group, va="center", fontweight="bold", color=INK, bbox=behind)
        place += 0.85
        for bar in bars:
            found = ratios(bar, records)
            mean = figures.geomean(one.value for one in found)
            low, high = figures.worst(found).value, figures.best(found).value
            axes.barh(place, mean, 0.62, color=_BAR, edgecolor=_LINE, linewidth=0.6)
            axes.plot([low, high], [place, place], "|-", color=_LINE, linewidth=1, markersize=6)
            axes.text(high + 0.03, place, f"{mean:.2f}x", va="center", color=INK)
            ticks[place] = bar.label
            longest = max(longest, high)
            place += 0.85
        place += 0.15
    axes.axvline(1, color=_LINE, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_ylim(place - 0.5, -0.6)
    axes.set_xlim(0, longest + 0.3)
    axes.set_xlabel("speed of the other = 1; bar: geometric mean, line: worst to best cell")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _made_of(records: dict[str, Record]) -> str:
    """Tell what was measured, on what, and beside which versions."""
    sessions = [session for record in records.values() for session in record.sessions]
    gpus = dict.fromkeys(str(session.gpu.get("name")) for session in sessions)
    days = sorted({session.started[:10] for session in sessions})
    versions = [
        f"{name} {' and '.join(there)}"
        for name in _PACKAGES
        if (there := dict.fromkeys(_versions(sessions, name)))
    ]
    span = " to ".join(dict.fromkeys((days[0], days[-1])))
    return f"Qwen-2.5 0.5B to 72B, BF16, {', '.join(gpus)}, {span}; {', '.join(versions)}"


def _versions(sessions: Sequence[Any], name: str) -> list[str]:
    packages = (session.environment.get("packages", {}) for session in sessions)
    return [there[name] for there in packages if name in there]


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw and write; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chart", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help=f"for {NAME}")
    options = parser.parse_args(arguments)
    try:
        records = {suite: load(RESULTS / f"{suite}_h200.json") for suite in SUITES}
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / NAME
        path.write_bytes(draw(records))
    except (ImportError, OSError, ValueError) as error:
        print(f"benchmarks: error: {error}", file=sys.stderr)
        return 1
    print(f"drawn: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
