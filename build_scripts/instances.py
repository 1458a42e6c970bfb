"""The one table of kernel instances, and what follows from each row."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_K = 64  # BF16 elements in one 128-byte swizzle span
ELEMENT_BYTES = 2
CONSUMERS = 2  # warpgroups, beside one producer warpgroup
THREADS = 128 * (1 + CONSUMERS)
BARRIER_BYTES = 8

#: How a weight lies in memory -> the name CuTe has for it.
MAJORS = {"k": "K", "n": "MN"}


@dataclass(frozen=True)
class Instance:
    """One dual kernel: a CTA computes block_m x block_n elements of the result.

    `raster_rows` is the rows of clusters that are walked before the next column of tiles (the
    default of a run-time argument).
    """

    schedule: str  # pingpong, cooperative
    block_m: int
    block_n: int
    cluster_m: int
    cluster_n: int
    stages: int
    raster_rows: int
    family: str = "dual"

    @property
    def name(self) -> str:
        tile = f"{self.block_m}x{self.block_n}"
        return f"{self.family}_{self.schedule}_{tile}_{self.cluster_m}x{self.cluster_n}"

    def entry(self, major: str) -> str:
        return f"{self.name}_{major}"

    @property
    def warpgroup_m(self) -> int:
        """Rows of the tile that one consumer warpgroup computes and stores."""
        return self.block_m if self.schedule == "pingpong" else self.block_m // CONSUMERS

    @property
    def box_n(self) -> int:
        """Columns of a TMA box of the result, and of N-major weights."""
        return next(width for width in (64, 32, 16) if self.block_n % width == 0)

    @property
    def shared_bytes(self) -> int:
        stage = (self.block_m + 2 * self.block_n) * BLOCK_K * ELEMENT_BYTES
        result = CONSUMERS * self.warpgroup_m * self.block_n * ELEMENT_BYTES
        barriers = (2 * self.stages + CONSUMERS) * BARRIER_BYTES
        total = self.stages * stage + result + barriers
        return -(-total // 1024) * 1024

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA boxes as [contiguous elements, rows]; in a cluster, one CTA's multicast slice."""
        return {
            "x": [BLOCK_K, self.block_m // self.cluster_n],
            "weight_k": [BLOCK_K, self.block_n // self.cluster_m],
            "weight_n": [self.box_n, BLOCK_K // self.cluster_m],
            "out": [self.box_n, self.warpgroup_m],
        }

    def source(self) -> str:
        """The translation unit: one entry per weight layout."""
        lines = ['#include "dual_kernel.cuh"']
        for major, cute_major in MAJORS.items():
            arguments = (
                self.entry(major),
                self.schedule.capitalize(),
                self.block_m,
                self.block_n,
                self.cluster_m,
                self.cluster_n,
                self.stages,
                cute_major,
                self.shared_bytes,
                self.box_n,
            )
            lines.append(f"CUSWIGLU_DUAL_ENTRY({', '.join(map(str, arguments))})")
        return "\n".join(lines) + "\n"


INSTANCES = (
    Instance("pingpong", 128, 96, 1, 1, stages=4, raster_rows=16),
    Instance("pingpong", 128, 96, 2, 1, stages=4, raster_rows=16),
    Instance("pingpong", 128, 64, 1, 1, stages=6, raster_rows=16),
    Instance("pingpong", 128, 64, 2, 1, stages=6, raster_rows=16),
    Instance("cooperative", 128, 128, 1, 1, stages=4, raster_rows=16),
    Instance("cooperative", 128, 128, 2, 1, stages=4, raster_rows=16),
)
