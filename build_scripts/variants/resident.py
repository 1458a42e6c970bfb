"""Kernels that keep their weights in shared memory, for short K and many rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cuswiglu.common.dtypes import ELEMENTS
from cuswiglu.kernels.resident import CONSUMERS
from cuswiglu.problem import Layout

from .arguments import RESIDENT, Arguments, declarations
from .base import BLOCK_K, MMA_ROWS, ExchangedSource, checked_entry

THREADS = 128 * (CONSUMERS + 1)
ELEMENT_BYTES = 2
BLOCK_N = 64  # columns of a tile: a swizzle's span
MAX_STAGES, MAX_SLICES = 16, 8
OUT_ROWS = 16  # of a warp, and of its TMA box of the result


@dataclass(frozen=True)
class ResidentSource(ExchangedSource):
    """A variant whose CTAs keep columns of both weights: tiles of 64 rows and 64 columns."""

    @property
    def name(self) -> str:
        """Name in the manifest: family_schedule_tile_cluster."""
        return f"{self.family}_resident_{MMA_ROWS}x{BLOCK_N}_1x1"

    @property
    def arguments(self) -> Arguments:
        """Arguments of its entry points."""
        return RESIDENT

    @property
    def fixed_bytes(self) -> int:
        """Size of the shared memory beside weights and stages: result, biases, barriers."""
        out = CONSUMERS * MMA_ROWS * BLOCK_N * ELEMENT_BYTES
        biases = MAX_SLICES * 2 * BLOCK_N * ELEMENT_BYTES
        barriers = 8 * (1 + 2 * MAX_STAGES)
        return out + -(-(biases + barriers) // 1024) * 1024

    @property
    def x_bytes(self) -> int:
        """Size of a step of K of X, of the rows of a tile."""
        return MMA_ROWS * BLOCK_K * ELEMENT_BYTES

    @property
    def weight_bytes(self) -> int:
        """Size of a step of K of both weights, of the columns of a tile."""
        return 2 * BLOCK_N * BLOCK_K * ELEMENT_BYTES

    def boxes(self) -> dict[str, list[int]]:
        """TMA boxes as [contiguous elements, rows, bytes of swizzle span]."""
        return {
            "x": [BLOCK_K, MMA_ROWS, 128],
            "out": [BLOCK_N, OUT_ROWS, 128],
            "weight_k": [BLOCK_K, BLOCK_N, 128],
            "weight_n": [BLOCK_N, BLOCK_K, 128],
        }

    def facts(self) -> dict[str, Any]:
        """Return the part of its manifest row that other kinds do not have."""
        return {
            "kind": "resident",
            "threads": THREADS,
            "block_m": MMA_ROWS,
            "block_n": BLOCK_N,
            "fixed_bytes": self.fixed_bytes,
            "weight_bytes": self.weight_bytes,
            "x_bytes": self.x_bytes,
            "max_stages": MAX_STAGES,
            "max_slices": MAX_SLICES,
            "boxes": self.boxes(),
        }

    def translation_unit(self) -> str:
        """Write the CUDA C++ of all its entry points."""
        lines = [
            "#define CUTLASS_ENABLE_GDC_FOR_SM90",
            '#include "impls/sm90_resident.cuh"',
            declarations(self.arguments, "cuswiglu::resident::ResidentKernel"),
        ]
        constants = {
            "kThreads": THREADS,
            "kBlockM": MMA_ROWS,
            "kBlockN": BLOCK_N,
            "kConsumers": CONSUMERS,
            "kMaxStages": MAX_STAGES,
            "kMaxSlices": MAX_SLICES,
            "kOutRows": OUT_ROWS,
            "kFixedBytes": self.fixed_bytes,
            f"kStepElementsX * {ELEMENT_BYTES}": self.x_bytes,
            f"kStepElementsB * {ELEMENT_BYTES}": self.weight_bytes,
            "kBoxN": BLOCK_N,
        }
        for entry in self.entries:
            major = "MN" if entry.layout is Layout.N else "K"
            traits = (
                f"cuswiglu::resident::ResidentTraits<{ELEMENTS[entry.w].cutlass}, "
                f"cuswiglu::Major::{major}>"
            )
            lines += checked_entry(entry, traits, constants, 1)
        return "\n".join(lines) + "\n"


RESIDENT_VARIANTS = (ResidentSource("dual"),)
