"""The histogram of ulps, as PNG."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from ..bench.report import plots
from ..testing.numerics import BINS
from .contenders import EAGER, UNFUSED
from .distributions import DISTRIBUTIONS
from .report import Report

_COLOURS = {"ours": "#3f7cac", EAGER: "#b5533c", UNFUSED: "#a67c00"}


def labels() -> list[str]:
    """Label the bins, in ulps."""
    edges = itertools.pairwise(BINS)
    ranges = [str(most) if most == low + 1 else f"{low + 1}-{most}" for low, most in edges]
    return [str(BINS[0]), *ranges, f">{BINS[-1]}"]


def shares(report: Report, distribution: str) -> dict[str, list[float]]:
    """Compute the share of all elements in each bin, over all cases of a distribution."""
    counts: dict[str, list[int]] = {}
    for row in report.cases:
        if row.case.distribution != distribution:
            continue
        for name, outcome in row.outcomes.items():
            if outcome.measured is not None:
                who = "ours" if outcome.ours else name
                held = counts.get(who, [0] * (len(BINS) + 1))
                counts[who] = [a + b for a, b in zip(held, outcome.measured.ulps, strict=True)]
    return {who: [one / sum(held) for one in held] for who, held in counts.items()}


def draw(report: Report, folder: Path) -> list[Path]:
    """Draw the histograms, one panel for each distribution; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = figure(report)
    return [] if drawn is None else [plots.save(drawn, folder / "ulps.png")]


def figure(report: Report) -> Any:
    """Draw the histograms as a matplotlib figure; None of a report without cases."""
    found = {name: shares(report, name) for name in DISTRIBUTIONS}
    found = {name: held for name, held in found.items() if held}
    if not found:
        return None
    made = plots.matplotlib_modules().figure.Figure(
        figsize=(8, 2.4 * len(found)), layout="constrained"
    )
    panels = made.subplots(len(found), squeeze=False)[:, 0]
    for axes, (name, held) in zip(panels, found.items(), strict=True):
        width = 0.8 / len(held)
        for number, (who, values) in enumerate(held.items()):
            places = [place + (number + 0.5) * width - 0.4 for place in range(len(values))]
            axes.bar(places, values, width, label=who, color=_COLOURS.get(who))
        axes.set_yscale("log")
        axes.set_ylim(1e-9, 2)
        axes.set_xticks(range(len(BINS) + 1), labels())
        axes.set_title(name, loc="left", fontsize=10)
        axes.set_ylabel("share of elements")
    panels[0].legend(frameon=False)
    panels[-1].set_xlabel("BF16 ulps from FP64 rounded once")
    return made
