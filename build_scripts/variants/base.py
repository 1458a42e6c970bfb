"""What the build asks of a row of its tables, of tiles or for decode."""

from __future__ import annotations

from typing import Any, Protocol

BLOCK_K = 64  # BF16 elements in one 128-byte swizzle span
MMA_ROWS = 64  # of a WGMMA, and of a TMA box of the result
SHARED_BYTES = 227 * 1024  # of an SM, for one CTA


class AnyInstance(Protocol):
    """What the build asks of an instance, of tiles or for decode."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def majors(self) -> tuple[str, ...]: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    def entry(self, key: str) -> str: ...
    def source(self) -> str: ...
    def facts(self) -> dict[str, Any]:
        """Its own part of the manifest's row."""
        ...
