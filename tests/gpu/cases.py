"""Every compiled variant, with each layout of weights it has an entry for; and launches of one."""

from __future__ import annotations

import itertools
from unittest import mock

import cuswiglu
from cuswiglu import arrays, problem
from cuswiglu.kernels.decode import DecodeVariant
from cuswiglu.kernels.manifest import variants
from cuswiglu.kernels.resident import ResidentVariant
from cuswiglu.kernels.swapped import SwappedVariant
from cuswiglu.kernels.tile import TileVariant
from cuswiglu.kernels.tile_columns import Cut, uniform
from cuswiglu.problem import activations
from cuswiglu.runtime import plan
from cuswiglu.selection import select


def cases(kind):
    """(kernel, layout) of the kernels of a kind, and their names."""
    found = [
        (kernel, layout)
        for kernel in variants()
        if isinstance(kernel, kind)
        for layout in kernel.layouts
    ]
    return found, [f"{kernel.name}-{layout}" for kernel, layout in found]


CASES, IDS = cases(TileVariant)
DECODE_CASES, DECODE_IDS = cases(DecodeVariant)
SWAPPED_CASES, SWAPPED_IDS = cases(SwappedVariant)
RESIDENT_CASES, RESIDENT_IDS = cases(ResidentVariant)


def widths(kernel, layout):
    """Widths of a column of tiles, widest first."""
    return dict(kernel.widths)[layout]


def pairs(kernel, layout):
    """Every two widths that a launch can have, the wide one first; one width alone is (w, w)."""
    return itertools.combinations_with_replacement(widths(kernel, layout), 2)


def cut(wide_width, narrow_width, wide, narrow, last):
    """(N, columns): so many wide and narrow columns, of the last of which `last` are in N."""
    if wide_width == narrow_width:
        n = (wide + narrow - 1) * wide_width + last
        return n, uniform(n, wide_width)
    n = wide * wide_width + (narrow - 1) * narrow_width + last
    return n, Cut(wide, wide_width, narrow, narrow_width)


def weights(layout, gate, up, gated):
    """Views of gate and up in a layout: "k" and "n" as they come, or packed ("p8", "p1")."""
    if layout.startswith("p"):
        packed = cuswiglu.pack(gate, up, granularity=int(layout[1:]))
        return problem.gate_up(packed, None, None)
    views = problem.gate_up(gate, up, None)
    return views if gated else views[:1]


def launch(
    cupy,
    kernel,
    x,
    views,
    out,
    *,
    weights_ahead=False,
    columns=None,
    split=None,
    slicing=None,
    raster_rows=0,
    activation="silu",
    biases=(),
):
    """Run one kernel, whatever selection would say.

    On these columns, or on those it would have; a decode kernel with this split; a swapped one cut
    as slicing(kernel, problem, clusters at once) says. `biases` are two arrays or None, or none at
    all.
    """
    x_view, out_view = arrays.view("x", x), arrays.view("out", out)
    added = [None if bias is None else arrays.view("bias", bias) for bias in biases]
    described = problem.describe(
        x_view, views, out_view, activation=activations.find(activation), biased=bool(biases)
    )
    choice = select.Choice("sm90", kernel.name, kernel, raster_rows, split=split)
    chosen = TileVariant.columns if columns is None else lambda *arguments: columns
    sliced = slicing or SwappedVariant.best
    with (
        mock.patch.object(TileVariant, "columns", chosen),
        mock.patch.object(SwappedVariant, "best", sliced),
    ):
        made = plan.Sm90Plan(described, choice, plan.driver(), weights_ahead=weights_ahead)
    made(x_view, views, out_view, cupy.cuda.get_current_stream().ptr, added)
