"""Kernels of tiles whose operands are exchanged, so that M goes in steps of 8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cuswiglu.common.dtypes import ELEMENTS
from cuswiglu.kernels.variant import PLAIN_FAMILIES
from cuswiglu.problem import EntryPoint, Layout

from .arguments import SWAPPED, Arguments, declarations
from .base import MMA_ROWS, boolean
from .entries import GENERAL, entries, is_general

THREADS = 384  # two consumer warpgroups and one of a producer
TOKEN_STEP = 8  # of a WGMMA's N, and of a TMA box of the result
FEWEST = 64  # tokens of a tile
MOST = {1: 208, 2: 200}  # CTAs of a cluster -> tokens of a tile: more do not fit registers
MAX_STAGES = 12
OUT_BYTES = 2 * 2 * 32 * MMA_ROWS * 2  # two buffers of 32 tokens for either consumer


@dataclass(frozen=True)
class SwappedSource:
    """A variant of exchanged operands: weights are the MMA's M, tokens its N.

    `raster_rows` is the rows of clusters (along N) that are walked before the next (the default of
    a run-time argument).
    """

    family: str
    cluster_n: int
    raster_rows: int = 16

    @property
    def gated(self) -> bool:
        """Whether it computes gate and up."""
        return self.family not in PLAIN_FAMILIES

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
    def entries(self) -> tuple[EntryPoint, ...]:
        """Its entry points."""
        return entries(self.name, (Layout.K, Layout.N), ("silu" if self.gated else "none", GENERAL))

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
            "schedule": "pingpong",
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
            traits = f"{entry.name}_traits"
            major = "MN" if entry.layout is Layout.N else "K"
            lines += [
                f"using {traits} = cuswiglu::swapped::SwappedTraits<"
                f"{ELEMENTS[entry.w].cutlass}, {boolean(self.gated)}, {self.cluster_n}, "
                f"cuswiglu::Major::{major}, {FEWEST}, {self.most}>;",
                *(
                    f'static_assert({traits}::{name} == {value}, "manifest");'
                    for name, value in constants.items()
                ),
                f"CUSWIGLU_ENTRY({entry.name}, {traits}, {boolean(is_general(entry))}, 1)",
            ]
        return "\n".join(lines) + "\n"


SWAPPED_VARIANTS = tuple(
    SwappedSource(family, cluster_n) for family in ("dual", "plain") for cluster_n in (1, 2)
)
