"""Display of a GatedMLP: a line, and in notebooks a table and a picture of the last tiles."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .. import problem
from ..kernels.tile_columns import Cut
from ..problem import Weights
from ..problem.activations import SILU, Activation
from ..runtime.chain import Chain
from ..runtime.plan import Sm90Plan
from ..selection import select

WIDTH = 480  # pixels, of the result's N columns
HEIGHTS = 24, 160  # of its M rows, at least and at most
GAP = 4  # pixels between lines that are still told apart
_WIDE, _NARROW, _LINE, _EDGE = "#7aa6c2", "#e0b060", "#ffffff", "#405060"
_LAYOUTS = {"k": "K-major", "n": "N-major"}
_TOKENS = 4  # values of M that are named for a kernel


@dataclass(frozen=True)
class LayerSummary:
    """Facts of a `GatedMLP`: `str()` is a line, `html()` a table and the last call's tiles.

    Attributes
    ----------
    variant : str
    activation : Activation
    weights : Weights
    chains : sequence of Chain
        Of the calls that are prepared, the most recent one last.
    """

    variant: str
    activation: Activation
    weights: Weights
    chains: Sequence[Chain]

    def __str__(self) -> str:
        """Say the facts in a line."""
        facts = self._facts()
        shapes = f"K={facts['K']}, N={facts['N']}, K_out={facts['K_out']}"
        return (
            f"GatedMLP({shapes}, {facts['layout']}, {self._unusual()}on {facts['device']}, "
            f"variant={self.variant!r}, {facts['in use']})"
        )

    def html(self) -> str:
        """Make a table of what `str()` says; for kernels, draw how the last results are tiled."""
        rows = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(fact)}</td></tr>'
            for name, fact in self._facts().items()
        )
        last = self.chains[-1].plans if self.chains else ()
        drawn = "".join(tiling(plan) for plan in last if isinstance(plan, Sm90Plan))
        return f"<div><b>GatedMLP</b><table>{rows}</table>{drawn}</div>"

    def _facts(self) -> dict[str, str]:
        gate = self.weights.gate_up[0]
        return {
            "K": str(self.weights.k),
            "N": str(self.weights.n),
            "K_out": str(self.weights.columns),
            "layout": self._layout(),
            "dtype": gate.dtype,
            "activation": str(self.activation),
            "biases": self._biased(),
            "device": str(gate.device),
            "variant": self.variant,
            "in use": self._in_use(),
        }

    def _biased(self) -> str:
        return ", ".join(bias.name for bias in self.weights.biases) or "none"

    def _unusual(self) -> str:
        """Name dtype, activation and biases where they differ from most models'."""
        dtype, biased = self.weights.gate_up[0].dtype, self.weights.biases
        parts = [
            *([dtype] if dtype != "bfloat16" else []),
            *([str(self.activation)] if self.activation != SILU else []),
            *([f"with {self._biased()}"] if biased else []),
        ]
        return "".join(f"{part}, " for part in parts)

    def _layout(self) -> str:
        """Name the weights' layout, in one word where gate, up and down lie the same way."""
        gate_up, down = self.weights.gate_up, self.weights.down
        names = [*(["gate and up"] if gate_up[0].packing else ["gate", "up"]), "down"]
        laid = [
            f"packed by {view.packing}"
            if view.packing
            else _LAYOUTS[str(problem.weight_layout(view))]
            for view in (*gate_up, down)
            if view is not None
        ]
        if len(set(laid)) == 1:
            return laid[0]
        return ", ".join(f"{name} {how}" for name, how in zip(names, laid, strict=True))

    def _in_use(self) -> str:
        if self.weights.gate_up[0].device.kind == "cpu":
            return f"backend {select.REFERENCE}"
        tokens: dict[str, set[int]] = {}
        for chain in self.chains:
            kernels = " then ".join(plan.choice.variant for plan in chain.plans)
            tokens.setdefault(kernels, set()).add(chain.plans[0].problem.m)
        if not tokens:
            return "no kernel in use yet"
        return "; ".join(f"{kernels} for M = {_some(found)}" for kernels, found in tokens.items())


def _some(tokens: Iterable[int]) -> str:
    ordered = sorted(tokens)
    shown = ", ".join(map(str, ordered[:_TOKENS]))
    return f"{shown}, ..." if len(ordered) > _TOKENS else shown


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
    height = max(HEIGHTS[0], min(round(WIDTH * m / n), HEIGHTS[1]))
    across = [WIDTH * end / n for end in _ends(columns) if end < n]
    down = [height * end / m for end in _ends(plan.rows) if end < m]
    boundary = min(WIDTH, WIDTH * columns.wide * columns.wide_width / n)
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
    """Say the picture in words: the result, rows and columns of tiles, how many run at once."""
    what = "gate and up" if plan.problem.gated else "down"
    shared = "K in {} parts" if plan.choice.split else "{} tiles each"
    per_cluster = f" ({shared.format(plan.grid[0])})" if plan.grid[0] > 1 else ""
    return (
        f"{what}, {plan.choice.variant}: M = {plan.problem.m} in rows of {plan.rows}; "
        f"N = {plan.problem.n} in columns of {plan.columns}; "
        f"{plan.rows.count * plan.columns.count} clusters{per_cluster}, {plan.clusters} at once"
    )


def _ends(cut: Cut) -> list[int]:
    """List where tiles end, in order."""
    wide_end = cut.wide * cut.wide_width
    ends = [cut.wide_width * i for i in range(1, cut.wide + 1)]
    return ends + [wide_end + cut.narrow_width * i for i in range(1, cut.narrow + 1)]


def _rectangle(x: float, width: float, height: int, fill: str) -> str:
    return f'<rect x="{x:.1f}" width="{width:.1f}" height="{height}" fill="{fill}"/>'


def _apart(positions: list[float]) -> list[float]:
    """Keep those of evenly drawn lines that are at least `GAP` pixels apart."""
    kept: list[float] = []
    for position in positions:
        if not kept or position - kept[-1] >= GAP:
            kept.append(position)
    return kept
