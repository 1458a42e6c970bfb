"""Rows of the build's tables: what is compiled to one cubin, and what the manifest says of it."""

from __future__ import annotations

from typing import Any, Protocol

from cuswiglu.problem import EntryPoint

from .arguments import Arguments

BLOCK_K = 64  # BF16 elements in one 128-byte swizzle span
MMA_ROWS = 64  # of a WGMMA, and of a TMA box of the result


class VariantSource(Protocol):
    """Source of one cubin: a row of the table of tiles, or of the one for few tokens."""

    @property
    def name(self) -> str:
        """Name in the manifest, in `variant=` and of the cubin."""
        ...

    @property
    def family(self) -> str:
        """Name of the kind of kernel: what it computes, and in which order."""
        ...

    @property
    def entries(self) -> tuple[EntryPoint, ...]:
        """Its entry points."""
        ...

    @property
    def arguments(self) -> Arguments:
        """Arguments of all its entry points."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return the part of its manifest row that depends on the kind of variant."""
        ...

    def translation_unit(self) -> str:
        """Write the CUDA C++ of all its entry points."""
        ...


def boolean(value: bool) -> str:
    """Spell a value as C++ does."""
    return "true" if value else "false"
