"""Entry points of a variant: one for every layout of the weights, element type and epilogue."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from cuswiglu.problem import EntryPoint, Layout

#: Element types that kernels are compiled for -> what an entry point's name says of them.
COMPILED = {"bfloat16": "", "float16": "_f16"}
#: Epilogue with biases and any activation; the others are "silu", and "none" of one weight.
GENERAL = "general"


def is_general(entry: EntryPoint) -> bool:
    """Tell whether an entry has biases and any activation."""
    return entry.epilogue == GENERAL


def record(entry: EntryPoint) -> dict[str, Any]:
    """Return an entry's part of the manifest, all but the compiler's report."""
    return asdict(entry) | {"layout": entry.layout.value}


def entries(
    variant: str,
    layouts: Iterable[Layout],
    epilogues: Iterable[str],
    elements: Iterable[str] = tuple(COMPILED),
) -> tuple[EntryPoint, ...]:
    """List the entry points of a variant: every layout, element type and epilogue.

    Operands of an entry are of one element type, without scales, and not grouped.
    """
    return tuple(
        EntryPoint(
            layout=layout,
            x=element,
            w=element,
            out=element,
            scales="none",
            epilogue=epilogue,
            grouped=False,
            name=_name(variant, layout, element, epilogue),
        )
        for layout, element, epilogue in itertools.product(layouts, elements, epilogues)
    )


def _name(variant: str, layout: Layout, element: str, epilogue: str) -> str:
    """Make the entry point's name, a C function's; it is unique, and nothing is read from it.

    Names are part of a cubin, and users' tuned tables count for the very cubins they were measured
    with: another name makes them void.
    """
    general = "_any" if epilogue == GENERAL else ""
    return f"{variant}_{layout}{COMPILED[element]}{general}".replace("-", "_")
