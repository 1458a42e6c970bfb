"""Kernels of tiles whose operands are exchanged, so that M goes in steps of 8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cuswiglu.common.dtypes import ELEMENTS
from cuswiglu.problem import Layout

from .arguments import SWAPPED, Arguments, declarations
from .base import MMA_ROWS, ExchangedSource, boolean, checked_entry

THREADS = 384  # two consumer warpgroups and one of a producer
TOKEN_STEP = 8  # of a WGMMA's N, and of a TMA box of the result
FEWEST = 64  # tokens of a tile
# CTAs of a cluster -> tokens of a tile: more do not fit registers.
MOST = {1: 208, 2: 200, 4: 200}
MAX_STAGES = 12
OUT_BYTES = 2 * 2 * 32 * MMA_ROWS * 2  # two buffers of 32 tokens for either consumer


@dataclass(frozen=True)
class SwappedSource(ExchangedSource):
    """A variant of exchanged operands: weights are the MMA's M, tokens its N.

    `raster_rows` is the rows of clusters (along N) that are walked before the next (the default of
    a run-time argument).
    """

    cluster_n: int
    raster_rows: int = 16

    @property
    def most(self) -> int:
        """Tokens of a tile, at most."""
        return MOST[self.cluster_n]

    @property
    def block_n(self) -> int:
        """Columns of the result in a tile, at most: of two boxes of weights, or of one pair."""
        return MMA_ROWS if self.gated else 2 * MMA_ROWS

    @property
    def name(self) -> str:
        """Name in the manifest: family_schedule_tile_cluster."""
        return f"{self.family}_pingpong_{self.most}x{self.block_n}_1x{self.cluster_n}"

    @property
    def arguments(self) -> Arguments:
        """Arguments of its entry points."""
        return SWAPPED

    @property
    def fixed_bytes(self) -> int:
        """Size of the shared memory beside the stages: buffers of the result, and barriers."""
        return OUT_BYTES + 1024

    def facts(self) -> dict[str, Any]:
        """Return the part of its manifest row that other kinds do not have."""
        return {
            "kind": "swapped",
            "threads": THREADS,
            "fewest": FEWEST,
            "most": self.most,
            "block_n": self.block_n,
            "cluster_n": self.cluster_n,
            "mma_rows": MMA_ROWS,
            "max_stages": MAX_STAGES,
            "fixed_bytes": self.fixed_bytes,
            "raster_rows": self.raster_rows,
        }

    def translation_unit(self) -> str:
        """Write the CUDA C++ of all its entry points."""
        lines = [
            "#define CUTLASS_ENABLE_GDC_FOR_SM90",
            "#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED",
            '#include "impls/sm90_swapped.cuh"',
            declarations(self.arguments, "cuswiglu::swapped::SwappedKernel"),
        ]
        constants = {
            "kThreads": THREADS,
            "kMmaRows": MMA_ROWS,
            "kMaxStages": MAX_STAGES,
            "kFixedBytes": self.fixed_bytes,
            "kStep": TOKEN_STEP,
        }
        for entry in self.entries:
            major = "MN" if entry.layout is Layout.N else "K"
            traits = (
                f"cuswiglu::swapped::SwappedTraits<{ELEMENTS[entry.w].cutlass}, "
                f"{boolean(self.gated)}, {self.cluster_n}, cuswiglu::Major::{major}, {FEWEST}, "
                f"{self.most}>"
            )
            lines += checked_entry(entry, traits, constants, 1)
        return "\n".join(lines) + "\n"


SWAPPED_VARIANTS = (
    *(SwappedSource("dual", cluster_n) for cluster_n in (1, 2)),
    *(SwappedSource("plain", cluster_n) for cluster_n in (1, 2, 4)),
)
