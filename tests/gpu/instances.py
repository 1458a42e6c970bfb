"""Every compiled instance, with each layout of weights it has an entry for."""

from __future__ import annotations

import cuswiglu
from cuswiglu import arrays, plan, problem, select

CASES = [(kernel, layout) for kernel in cuswiglu.variants() for layout, _ in kernel.entries]
IDS = [f"{kernel.name}-{layout}" for kernel, layout in CASES]


def weights(layout, gate, up, gated):
    """Views of gate and up in a layout: "k" and "n" as they come, or packed ("p8", "p1")."""
    if layout.startswith("p"):
        packed = cuswiglu.pack(gate, up, granularity=int(layout[1:]))
        return problem.gate_up(packed, None, None)
    views = problem.gate_up(gate, up, None)
    return views if gated else views[:1]


def launch(cupy, kernel, x, views, out, *, weights_ahead=False):
    """Run one kernel, whatever selection would say."""
    x_view, out_view = arrays.view("x", x), arrays.view("out", out)
    described = problem.describe(x_view, views, out_view)
    choice = select.Choice("sm90", kernel.name, kernel)
    made = plan.Sm90Plan(described, choice, plan.driver(), weights_ahead=weights_ahead)
    made(x_view, views, out_view, cupy.cuda.get_current_stream().ptr)
