"""Kernels for few tokens: the table, and what follows from each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cuswiglu.common.dtypes import ELEMENTS
from cuswiglu.kernels.variant import DECODE_FAMILIES
from cuswiglu.problem import Layout

from .arguments import DECODE, Arguments, declarations
from .base import MMA_ROWS, ExchangedSource, boolean, checked_entry

THREADS = 288  # two consumer warpgroups and a producer warp
MAX_ROWS = 2 * MMA_ROWS
MAX_RANKS = 8  # CTAs of a cluster that every Hopper GPU takes
MAX_STAGES = 32
BARRIER_BYTES = 1024
MAX_CHUNK = 64


@dataclass(frozen=True)
class DecodeSource(ExchangedSource):
    """A variant for few tokens, of DECODE_FAMILIES: `tokens` are the columns of its MMA."""

    tokens: int

    @property
    def name(self) -> str:
        """Name in the manifest: family_tokens."""
        return f"{self.family}_{self.tokens}"

    @property
    def arguments(self) -> Arguments:
        """Arguments of its entry points."""
        return DECODE

    @property
    def ctas(self) -> int:
        """Number of CTAs that find registers on an SM."""
        return 1 if self.tokens > 64 else 2

    @property
    def chunk(self) -> int:
        """Number of tokens whose sums are sent to other CTAs at a time."""
        return min(self.tokens, MAX_CHUNK)

    def facts(self) -> dict[str, Any]:
        """Return the part of its manifest row that tile variants do not have."""
        return {
            "kind": "decode",
            "threads": THREADS,
            "tokens": self.tokens,
            "mma_rows": MMA_ROWS,
            "max_rows": MAX_ROWS,
            "max_ranks": MAX_RANKS,
            "max_stages": MAX_STAGES,
            "ctas": self.ctas,
            "barrier_bytes": BARRIER_BYTES,
            "chunk": self.chunk,
        }

    def translation_unit(self) -> str:
        """Write the CUDA C++ of all its entry points."""
        lines = [
            "#define CUTLASS_ENABLE_GDC_FOR_SM90",
            '#include "impls/sm90_decode.cuh"',
            declarations(self.arguments, "cuswiglu::decode::DecodeKernel"),
        ]
        constants = {
            "kThreads": THREADS,
            "kMmaRows": MMA_ROWS,
            "kMaxStages": MAX_STAGES,
            "kBarrierBytes": BARRIER_BYTES,
            "kChunk": self.chunk,
        }
        for entry in self.entries:
            major = "MN" if entry.layout is Layout.N else "K"
            traits = (
                f"cuswiglu::decode::DecodeTraits<{ELEMENTS[entry.w].cutlass}, "
                f"{boolean(self.gated)}, {self.tokens}, cute::GMMA::Major::{major}>"
            )
            lines += checked_entry(entry, traits, constants, self.ctas)
        return "\n".join(lines) + "\n"


DECODE_VARIANTS = tuple(
    DecodeSource(family, tokens) for family in DECODE_FAMILIES for tokens in (8, 16, 32, 64, 128)
)
