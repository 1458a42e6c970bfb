"""What a GatedMLP says of itself: in a line, and in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .. import problem
from ..arrays import ArrayView
from ..problem.activations import SILU, Activation
from ..problem.biases import Biases
from ..runtime.plan import Plan, Sm90Plan
from ..selection import select
from . import tiling_picture

_LAYOUTS = {"k": "K-major", "n": "N-major"}
_TOKENS = 4  # values of M that are named for a kernel


@dataclass(frozen=True)
class Description:
    """Of a `GatedMLP`: `str()` is a line, `html()` a table and a picture of the last call's tiles.

    Attributes
    ----------
    variant : str
    activation : Activation
    gate_up : tuple of ArrayView
    down : ArrayView
    biases : Biases
    plans : sequence of tuple of plan
        Of the calls that are ready, the most recent one last.
    """

    variant: str
    activation: Activation
    gate_up: tuple[ArrayView, ...]
    down: ArrayView
    biases: Biases
    plans: Sequence[tuple[Plan, ...]]

    def __str__(self) -> str:
        facts = self._facts()
        shapes = f"K={facts['K']}, N={facts['N']}, K_out={facts['K_out']}"
        return (
            f"GatedMLP({shapes}, {facts['layout']}, {self._extras()}on {facts['device']}, "
            f"variant={self.variant!r}, {facts['in use']})"
        )

    def html(self) -> str:
        """A table of what `str()` says; for kernels, how the last call's results are tiled."""
        rows = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(fact)}</td></tr>'
            for name, fact in self._facts().items()
        )
        last = self.plans[-1] if self.plans else ()
        drawn = "".join(tiling_picture.tiling(plan) for plan in last if isinstance(plan, Sm90Plan))
        return f"<div><b>GatedMLP</b><table>{rows}</table>{drawn}</div>"

    def _facts(self) -> dict[str, str]:
        gate = self.gate_up[0]
        return {
            "K": str(gate.shape[0]),
            "N": str(problem.intermediate(self.gate_up)),
            "K_out": str(self.down.shape[1]),
            "layout": self._layout(),
            "dtype": gate.dtype,
            "activation": str(self.activation),
            "biases": self._biased(),
            "device": str(gate.device),
            "variant": self.variant,
            "in use": self._in_use(),
        }

    def _biased(self) -> str:
        return ", ".join(bias.name for bias in self.biases.given) or "none"

    def _extras(self) -> str:
        """What few models have."""
        dtype, biased = self.gate_up[0].dtype, self.biases.given
        parts = [
            *([dtype] if dtype != "bfloat16" else []),
            *([str(self.activation)] if self.activation != SILU else []),
            *([f"with {self._biased()}"] if biased else []),
        ]
        return "".join(f"{part}, " for part in parts)

    def _layout(self) -> str:
        """One word where gate, up and down lie the same way."""
        names = [*(["gate and up"] if self.gate_up[0].packing else ["gate", "up"]), "down"]
        laid = [
            f"packed by {view.packing}"
            if view.packing
            else _LAYOUTS[str(problem.weight_layout(view))]
            for view in (*self.gate_up, self.down)
        ]
        if len(set(laid)) == 1:
            return laid[0]
        return ", ".join(f"{name} {how}" for name, how in zip(names, laid, strict=True))

    def _in_use(self) -> str:
        if self.gate_up[0].device.kind == "cpu":
            return f"backend {select.REFERENCE}"
        tokens: dict[str, set[int]] = {}
        for plans in self.plans:
            kernels = " then ".join(plan.choice.variant for plan in plans)
            tokens.setdefault(kernels, set()).add(plans[0].problem.m)
        if not tokens:
            return "no kernel in use yet"
        return "; ".join(f"{kernels} for M = {_some(found)}" for kernels, found in tokens.items())


def _some(tokens: Iterable[int]) -> str:
    ordered = sorted(tokens)
    shown = ", ".join(map(str, ordered[:_TOKENS]))
    return f"{shown}, ..." if len(ordered) > _TOKENS else shown
