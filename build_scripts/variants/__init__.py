"""The tables of variants: a row is compiled to one cubin."""

from .base import VariantSource
from .decode import DECODE_VARIANTS
from .resident import RESIDENT_VARIANTS
from .swapped import SWAPPED_VARIANTS
from .tile import ABLATIONS, TILE_VARIANTS

__all__ = [
    "ABLATIONS",
    "ALL_VARIANTS",
    "DECODE_VARIANTS",
    "RESIDENT_VARIANTS",
    "SWAPPED_VARIANTS",
    "TILE_VARIANTS",
    "VariantSource",
]

#: The variants of the package.
ALL_VARIANTS: tuple[VariantSource, ...] = (
    *SWAPPED_VARIANTS,
    *RESIDENT_VARIANTS,
    *TILE_VARIANTS,
    *DECODE_VARIANTS,
)
