"""Calls of every kind, each with its FP64 reference and the bits of its first, verified result."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import cuswiglu
from cuswiglu.testing import numerics
from tests.gpu.compare import NEAR_ZERO, assert_close, of_flips, reference
from tests.gpu.drawing import drawer, weight

MS = (1, 2, 3, 5, 8, 9, 16, 17, 31, 33, 64, 65, 100, 128, 130, 200, 256, 257, 300, 400, 511, 600)
KS = (64, 72, 200, 512, 896)
NS = (40, 96, 264, 520, 1216, 2056)
K_OUTS = (8, 64, 200, 640)
KINDS = ("swiglu", "mlp", "GatedMLP")
#: Layout of the weights -> variants to ask for. What no kernel takes is asked of the portable path.
VARIANTS = {
    "k": ("auto", "dual", "sync", "decode"),
    "n": ("auto", "dual", "sync", "decode"),
    "mixed": ("cublas",),
    "p8": ("auto", "interleave"),
    "p1": ("auto", "interleave"),
}


@dataclass
class Case:
    """A call with fixed arguments: call(out=, stream=) gives a result of `shape`.

    Attributes
    ----------
    expected : array of float64
    prefix_of : Case, optional
        Whose first tokens are this one's, with the same bits.
    bits : array of uint16
        What every call gives; there once it is verified.
    """

    name: str
    call: Callable[..., Any]
    expected: Any
    near_zero: float
    prefix_of: Case | None = None
    bits: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.expected.shape)

    def verify(self, xp: Any) -> None:
        """Call once, and compare with FP64.

        Raises
        ------
        AssertionError
        """
        found = self.call()
        try:
            assert_close(xp, found, self.expected, near_zero=self.near_zero)
        except AssertionError as error:
            raise AssertionError(f"{self.name}: {error}") from error
        self.bits = found.view(np.uint16)
        if self.prefix_of is not None:
            whole = self.prefix_of.bits[: len(found)]
            assert bool((self.bits == whole).all()), f"{self.name}: other bits than among more"


def make(xp: Any, ms: tuple[int, ...] = MS) -> Iterator[Case]:
    """Cases of every M, kind and layout; on the CPU those that need no GPU."""
    draw, on_gpu = drawer(xp), xp is not np
    choose, layouts = random.Random(0), itertools.cycle(VARIANTS)
    for (m, kind), layout in zip(itertools.product(ms, KINDS), layouts, strict=False):
        k, n, k_out = (choose.choice(sizes) for sizes in (KS, NS, K_OUTS))
        variant = choose.choice(VARIANTS[layout]) if on_gpu else "auto"
        x = draw(m, k)
        gate = weight(draw, k, n, "k" if layout == "mixed" else layout)
        up = weight(draw, k, n, "n" if layout == "mixed" else layout)
        down = weight(draw, n, k_out, "n" if layout == "n" else "k")
        given = gate, up
        if layout.startswith("p"):
            given = cuswiglu.pack(gate, up, granularity=int(layout[1:])), None
        name = f"{kind} {variant} {layout} M={m} K={k} N={n}"
        if kind == "swiglu":
            expected, near_zero = reference(xp, x, gate, up), NEAR_ZERO
        else:
            expected, near_zero = numerics.mlp_reference(xp, x, gate, up, down), of_flips(n)
            name += f" K_out={k_out}"
        yield Case(name, _call(kind, x, given, down, variant), expected, near_zero)
    if on_gpu:
        for layout in "kn":
            yield from _for_any_m(xp, draw, layout, ms)


def _call(kind: str, x: Any, given: Any, down: Any, variant: str) -> Callable[..., Any]:
    if kind == "swiglu":
        return lambda **options: cuswiglu.swiglu(x, *given, variant=variant, **options)
    if kind == "mlp":
        return lambda **options: cuswiglu.mlp(x, *given, down, variant=variant, **options)
    layer = cuswiglu.GatedMLP(*given, down, variant=variant)
    return lambda **options: layer(x, **options)


def _for_any_m(xp: Any, draw: Any, layout: str, ms: tuple[int, ...]) -> Iterator[Case]:
    """Cases whose tokens have the same bits whatever M is."""
    k, n, k_out = 512, 1216, 200
    x = draw(max(ms), k)
    gate, up = weight(draw, k, n, layout), weight(draw, k, n, layout)
    down = weight(draw, n, k_out, layout)
    layer = cuswiglu.GatedMLP(gate, up, down, deterministic="batch")
    expected = numerics.mlp_reference(xp, x, gate, up, down)
    whole = None
    for m in sorted(ms, reverse=True):
        tokens = x[:m]
        case = Case(
            f"batch {layout} M={m}",
            lambda tokens=tokens, **options: layer(tokens, **options),
            expected[:m],
            of_flips(n),
            whole,
        )
        whole = whole or case
        yield case


def verified(xp: Any, ms: tuple[int, ...] = MS) -> list[Case]:
    """All cases, verified."""
    cases = list(make(xp, ms))
    for case in cases:
        case.verify(xp)
    return cases
