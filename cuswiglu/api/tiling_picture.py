"""Pictures of how a result is cut into tiles, as SVG for notebooks."""

from __future__ import annotations

import html

from ..runtime.plan import Sm90Plan

WIDTH = 480  # pixels, of the result's N columns
HEIGHTS = 24, 160  # of its M rows, at least and at most
GAP = 4  # pixels between lines that are still told apart
_WIDE, _NARROW, _LINE, _EDGE = "#7aa6c2", "#e0b060", "#ffffff", "#405060"


def tiling(plan: Sm90Plan) -> str:
    """Draw what a kernel computes, to scale: columns of the wide and the narrow width, and rows.

    Parameters
    ----------
    plan : Sm90Plan
        Its problem's result is (M, N).

    Returns
    -------
    str
        An ``<svg>`` of at most a few kilobytes, and a line of text below it. Where tiles are too
        small to be told apart, every second, third... line between them is drawn.
    """
    m, n, columns = plan.problem.m, plan.problem.n, plan.columns
    height = _between(round(WIDTH * m / n), *HEIGHTS)
    # Elements of N at which a column ends, in order.
    wide_end = columns.wide * columns.wide_width
    ends = [columns.wide_width * i for i in range(1, columns.wide + 1)]
    ends += [wide_end + columns.narrow_width * i for i in range(1, columns.narrow + 1)]
    across = [WIDTH * end / n for end in ends if end < n]
    down = [height * plan.tokens * i / m for i in range(1, plan.rows)]
    boundary = min(WIDTH, WIDTH * wide_end / n)
    parts = [_rectangle(0, boundary, height, _WIDE)] if columns.wide else []
    if columns.narrow:
        parts.append(_rectangle(boundary, WIDTH - boundary, height, _NARROW))
    lines = "".join(f"M{x:.1f} 0v{height}" for x in _apart(across))
    lines += "".join(f"M0 {y:.1f}h{WIDTH}" for y in _apart(down))
    parts += [
        f'<path d="{lines}" stroke="{_LINE}" stroke-width="0.8"/>',
        f'<rect width="{WIDTH}" height="{height}" fill="none" stroke="{_EDGE}"/>',
    ]
    said = html.escape(caption(plan))
    return (
        f'<figure style="margin:4px 0"><svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{said}" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">{"".join(parts)}</svg>'
        f'<figcaption style="font-size:smaller">{said}</figcaption></figure>'
    )


def caption(plan: Sm90Plan) -> str:
    """The picture in words: the result, its rows and columns of tiles, and how many run at once."""
    columns, rows = plan.columns, plan.rows
    what = "gate and up" if plan.problem.gated else "down"
    widths = [(columns.wide, columns.wide_width), (columns.narrow, columns.narrow_width)]
    cut = " and ".join(f"{count} of {width}" for count, width in widths if count)
    shared = "K in {} parts" if plan.choice.split else "{} tiles each"
    per_cluster = f" ({shared.format(plan.grid[0])})" if plan.grid[0] > 1 else ""
    return (
        f"{what}, {plan.choice.variant}: M = {plan.problem.m} in {rows} rows of "
        f"{plan.tokens}, N = {plan.problem.n} in columns: {cut}; "
        f"{rows * columns.count} clusters{per_cluster}, {plan.clusters} at once"
    )


def _rectangle(x: float, width: float, height: int, fill: str) -> str:
    return f'<rect x="{x:.1f}" width="{width:.1f}" height="{height}" fill="{fill}"/>'


def _apart(positions: list[float]) -> list[float]:
    """Those of evenly drawn lines that are at least `GAP` pixels apart."""
    kept: list[float] = []
    for position in positions:
        if not kept or position - kept[-1] >= GAP:
            kept.append(position)
    return kept


def _between(value: int, least: int, most: int) -> int:
    return max(least, min(most, value))
