"""The tables of variants: a row is compiled to one cubin."""

from .base import VariantSource
from .decode import DECODE_VARIANTS
from .tile import ABLATIONS, TILE_VARIANTS

__all__ = ["ABLATIONS", "ALL_VARIANTS", "DECODE_VARIANTS", "TILE_VARIANTS", "VariantSource"]

#: The variants of the package.
ALL_VARIANTS: tuple[VariantSource, ...] = (*TILE_VARIANTS, *DECODE_VARIANTS)
