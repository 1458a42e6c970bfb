"""Rows of the build's tables: what is compiled to one cubin, and what the manifest says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cuswiglu.kernels.variant import PLAIN_FAMILIES
from cuswiglu.problem import EntryPoint, Layout

from .arguments import Arguments
from .entries import GENERAL, entries, is_general

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


@dataclass(frozen=True)
class ExchangedSource:
    """What rows of kernels of exchanged operands share: any layout, gate and up or one weight."""

    family: str

    @property
    def name(self) -> str:
        """Name in the manifest."""
        raise NotImplementedError

    @property
    def gated(self) -> bool:
        """Whether it computes gate and up."""
        return self.family not in PLAIN_FAMILIES

    @property
    def entries(self) -> tuple[EntryPoint, ...]:
        """Its entry points."""
        return entries(self.name, (Layout.K, Layout.N), ("silu" if self.gated else "none", GENERAL))


def checked_entry(
    entry: EntryPoint, traits: str, constants: Mapping[str, int], ctas: int
) -> list[str]:
    """Write an entry point of these traits, `ctas` to an SM.

    The compiler compares `constants` of the traits with what the manifest says.
    """
    name = f"{entry.name}_traits"
    return [
        f"using {name} = {traits};",
        *(
            f'static_assert({name}::{constant} == {value}, "manifest");'
            for constant, value in constants.items()
        ),
        f"CUSWIGLU_ENTRY({entry.name}, {name}, {boolean(is_general(entry))}, {ctas})",
    ]


def boolean(value: bool) -> str:
    """Spell a value as C++ does."""
    return "true" if value else "false"
