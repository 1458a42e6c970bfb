"""Kernels for few tokens: the table, and what follows from each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import MMA_ROWS
from .elements import MAJORS, keyed

#: Families -> whether they have gate and up.
DECODE_FAMILIES = {"decode": True, "decode-plain": False}
THREADS = 288  # two consumer warpgroups and a producer warp
MAX_ROWS = 2 * MMA_ROWS
MAX_RANKS = 8  # CTAs of a cluster that every Hopper GPU takes
MAX_STAGES = 32
BARRIER_BYTES = 1024
MAX_CHUNK = 64


@dataclass(frozen=True)
class DecodeInstance:
    """One kernel: `tokens` are the columns of its MMA."""

    family: str  # of DECODE_FAMILIES
    tokens: int

    @property
    def name(self) -> str:
        return f"{self.family}_{self.tokens}"

    @property
    def majors(self) -> tuple[str, ...]:
        return ("k", "n")

    @property
    def keys(self) -> tuple[str, ...]:
        """What entries are known by."""
        return tuple(keyed(self.majors))

    def entry(self, key: str) -> str:
        return f"{self.name}_{key}".replace("-", "_")

    @property
    def ctas(self) -> int:
        """CTAs that find registers on an SM."""
        return 1 if self.tokens > 64 else 2

    @property
    def chunk(self) -> int:
        """Tokens whose sums are sent to other CTAs at a time."""
        return min(self.tokens, MAX_CHUNK)

    def facts(self) -> dict[str, Any]:
        return {
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

    def source(self) -> str:
        """The translation unit, with an entry of every key."""
        lines = ["#define CUTLASS_ENABLE_GDC_FOR_SM90", '#include "impls/sm90_decode.cuh"']
        for key, (major, element, extras) in keyed(self.majors).items():
            arguments = (
                self.entry(key),
                element,
                extras,
                str(DECODE_FAMILIES[self.family]).lower(),
                self.tokens,
                MAJORS[major],
                self.ctas,
                THREADS,
                MMA_ROWS,
                MAX_STAGES,
                BARRIER_BYTES,
                self.chunk,
            )
            lines.append(f"CUSWIGLU_DECODE_ENTRY({', '.join(map(str, arguments))})")
        return "\n".join(lines) + "\n"


DECODE_INSTANCES = tuple(
    DecodeInstance(family, tokens) for family in DECODE_FAMILIES for tokens in (8, 16, 32, 64, 128)
)
