"""Entry points of a variant: one for every layout of the weights, element type and epilogue."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from cuswiglu.common.dtypes import ELEMENTS

#: Layout of a weight: along K or along N; gate and up packed by turns of 8 columns or of 1.
LAYOUTS = ("k", "n", "p8", "p1")
#: Layout of packed weights -> the columns that gate and up take turns by.
PACKINGS = {"p8": 8, "p1": 1}
#: Epilogue with biases and any activation; the others are "silu", and "none" of one weight.
GENERAL = "general"


@dataclass(frozen=True)
class Entry:
    """An entry point: its name, and what it computes with.

    Attributes
    ----------
    name : str
    layout : str
        Of `LAYOUTS`.
    x, w, out : str
        Element types, of `cuswiglu.common.dtypes.ELEMENTS`.
    scales : str
        How scales of the weights lie; "none" where there are none.
    epilogue : str
        "silu", "none" or "general".
    grouped : bool
        Whether rows of x belong to groups, each with weights of its own.
    """

    name: str
    layout: str
    x: str
    w: str
    out: str
    scales: str
    epilogue: str
    grouped: bool

    @property
    def general(self) -> bool:
        """Whether it has biases and any activation."""
        return self.epilogue == GENERAL

    def record(self) -> dict[str, Any]:
        """Return its part of the manifest, all but the compiler's report."""
        return asdict(self)


def entries(
    variant: str,
    layouts: Iterable[str],
    epilogues: Iterable[str],
    elements: Iterable[str] = tuple(ELEMENTS),
) -> tuple[Entry, ...]:
    """List the entry points of a variant: every layout, element type and epilogue.

    Operands of an entry are of one element type, without scales, and not grouped.
    """
    return tuple(
        Entry(
            name=_name(variant, layout, element, epilogue),
            layout=layout,
            x=element,
            w=element,
            out=element,
            scales="none",
            epilogue=epilogue,
            grouped=False,
        )
        for layout, element, epilogue in itertools.product(layouts, elements, epilogues)
    )


def _name(variant: str, layout: str, element: str, epilogue: str) -> str:
    """Make the entry point's name, a C function's; it is unique, and nothing is read from it.

    Names are part of a cubin, and users' tuned tables count for the very cubins they were measured
    with: another name makes them void.
    """
    half = "_f16" if element == "float16" else ""
    general = "_any" if epilogue == GENERAL else ""
    return f"{variant}_{layout}{half}{general}".replace("-", "_")
