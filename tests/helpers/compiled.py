"""The package's kernels as tests need them, and kernels made up from them."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from cuswiglu import autotune
from cuswiglu.api import explain
from cuswiglu.kernels import manifest
from cuswiglu.kernels.decode import DecodeVariant
from cuswiglu.kernels.manifest import variants
from cuswiglu.kernels.swapped import SwappedVariant
from cuswiglu.kernels.tile import TileVariant
from cuswiglu.kernels.variant import Variant
from cuswiglu.problem import EntryPoint, Layout
from cuswiglu.selection import select

LAYOUTS = ("k", "n")  # of a weight by itself; packed weights have layouts of their own
#: Kernels of tiles.
TILES = [kernel for kernel in variants() if isinstance(kernel, TileVariant)]
#: Of them those of gate and up as two weights, of one weight, and of packed gate and up.
GATED = [k for k in TILES if k.gated and not set(LAYOUTS).isdisjoint(k.layouts)]
PLAIN = [kernel for kernel in TILES if not kernel.gated]
PACKED = [k for k in TILES if any(major.startswith("p") for major in k.layouts)]
#: Kernels of exchanged operands: all, of gate and up, and of one weight.
SWAPPED = [kernel for kernel in variants() if isinstance(kernel, SwappedVariant)]
SWAPPED_GATED = [kernel for kernel in SWAPPED if kernel.gated]
SWAPPED_PLAIN = [kernel for kernel in SWAPPED if not kernel.gated]
#: Kernels for few tokens: all, of gate and up, and of one weight.
DECODE = [kernel for kernel in variants() if isinstance(kernel, DecodeVariant)]
DECODE_GATED = [kernel for kernel in DECODE if kernel.gated]
DECODE_PLAIN = [kernel for kernel in DECODE if not kernel.gated]
#: Layouts that some kernel of gate and up has an entry for.
MAJORS = [major for major in LAYOUTS if any(major in kernel.layouts for kernel in GATED)]
BF16 = ("bfloat16",) * 3  # x, the weights and the result


def entry_of(
    kernel: Variant, layout: str = "k", element: str = "bfloat16", *, general: bool = False
) -> str:
    """The name of an entry point; for SiLU, or without an activation, unless it is the general."""
    epilogue = "general" if general else "silu" if kernel.gated else "none"
    return kernel.entry(
        EntryPoint(Layout(layout), *(element,) * 3, "none", epilogue, grouped=False)
    )


#: (kernel, layout) of every entry for SiLU alone, in BF16, of a kernel of tiles for gate and up.
ENTRIES = [
    pytest.param(kernel, major, id=entry_of(kernel, major))
    for kernel in GATED
    for major in kernel.layouts
    if major in LAYOUTS
]


def name_of(value: object) -> str:
    """The id of a parameter that is a variant, or a row of the build that one is made of."""
    return str(getattr(value, "name", value))


def made_up(like: Variant | None = None, **changes: object) -> Variant:
    """A kernel that was not compiled; of tiles of gate and up, unless said otherwise."""
    return dataclasses.replace(like or GATED[0], **changes)


def with_layouts(kernel: TileVariant, *majors: str) -> TileVariant:
    """The kernel of tiles as if it had entries for these weight layouts, and no others."""
    boxes = dict(kernel.boxes)
    boxes.setdefault("weight_n", (32, kernel.block_k, 64))
    if "n" not in majors:
        del boxes["weight_n"]
    silu = "silu" if kernel.gated else "none"
    entries = tuple(
        EntryPoint(Layout(major), *BF16, "none", silu, False, f"{kernel.name}_{major}")
        for major in majors
    )
    known = dict(kernel.widths)
    widths = tuple((major, known.get(major, (kernel.block_n,))) for major in majors)
    return dataclasses.replace(kernel, entries=entries, widths=widths, boxes=tuple(boxes.items()))


def without(kernel: Variant, what: str) -> Variant:
    """The kernel as if it had not been compiled for an element type, or an epilogue."""
    entries = tuple(entry for entry in kernel.entries if what not in (entry.x, entry.epilogue))
    return dataclasses.replace(kernel, entries=entries)


def pretend_compiled(monkeypatch: pytest.MonkeyPatch, *kernels: Variant) -> list[Variant]:
    """Let `cuswiglu.variants` list these kernels alone, with cubins that the fake driver loads."""
    codes = {k.name: " ".join(entry.name for entry in k.entries).encode() for k in kernels}
    hashes = {name: hashlib.sha256(code).hexdigest() for name, code in codes.items()}
    made = tuple(dataclasses.replace(k, sha256=hashes[k.name]) for k in kernels)
    monkeypatch.setattr(manifest, "cubin", lambda kernel: codes[kernel.name])
    for module in _modules_that_list_variants():
        monkeypatch.setattr(module, "variants", lambda: made)
    return list(made)


def _modules_that_list_variants() -> list[object]:
    import cuswiglu

    return [cuswiglu, explain, select, autotune, manifest]
