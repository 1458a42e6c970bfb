"""Kernels made from rows of the build's tables, as the manifest has them, but not compiled."""

from __future__ import annotations

from build_scripts.variants.base import BLOCK_K, ExchangedSource
from cuswiglu.kernels.variant import Variant


def made_from(
    source: ExchangedSource, kind: type[Variant], registers: int, not_fields: tuple[str, ...], **own
) -> Variant:
    """The kernel of a row: its facts, but for those that only the manifest and the build need."""
    facts = {name: fact for name, fact in source.facts().items() if name not in not_fields}
    return kind(
        name=source.name,
        family=source.family,
        block_k=BLOCK_K,
        n_multiple=8,
        k_multiple=8,
        alignment_bytes=16,
        entries=source.entries,
        arguments=source.arguments,
        registers=registers,
        cubin="",
        sha256="",
        **facts,
        **own,
    )
