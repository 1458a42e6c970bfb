"""The one table of kernel instances, and what follows from each row."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_K = 64  # BF16 elements in one 128-byte swizzle span
ELEMENT_BYTES = 2
CONSUMERS = 2  # warpgroups, beside one producer warpgroup
THREADS = 128 * (1 + CONSUMERS)
BARRIER_BYTES = 8
SHARED_BYTES = 227 * 1024  # of an SM, for one CTA
BARRIER_SPACE = 1024
MAX_STAGES = 8
MIN_OUT_STAGES, MAX_OUT_STAGES = 2, 4
ROW_BOX = 64  # rows of a WGMMA, and of a TMA box of X or of the result

#: How a weight lies in memory -> the name CuTe has for it.
MAJORS = {"k": "K", "n": "MN", "p8": "K", "p1": "K"}
#: Of packed weights, the columns that gate and up take turns by.
PACKINGS = {"p8": 8, "p1": 1}
#: Widths of WGMMA that CuTe's small header has (BF16); others cost a larger header.
COMMON_WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Instance:
    """One kernel: a CTA computes block_m x block_n elements of the result.

    `raster_rows` is the rows of clusters that are walked before the next column of tiles (the
    default of a run-time argument).
    """

    family: str  # dual, sync, interleave, plain
    schedule: str  # pingpong, cooperative
    block_m: int
    block_n: int
    cluster_m: int
    cluster_n: int
    raster_rows: int = 16

    @property
    def name(self) -> str:
        tile = f"{self.block_m}x{self.block_n}"
        return f"{self.family}_{self.schedule}_{tile}_{self.cluster_m}x{self.cluster_n}"

    @property
    def majors(self) -> tuple[str, ...]:
        """Weight layouts it has entries for: N-major needs swizzled boxes along N."""
        if self.family == "interleave":
            return tuple(PACKINGS)
        return ("k", "n") if self.block_n % 32 == 0 else ("k",)

    def entry(self, major: str) -> str:
        return f"{self.name}_{major}"

    @property
    def weight_n(self) -> int:
        """Columns of one weight's tile: packed weights have two for each of the result."""
        return 2 * self.block_n if self.family == "interleave" else self.block_n

    @property
    def columns(self) -> int:
        """Columns of all weight tiles in a stage."""
        return 2 * self.block_n if self.family in ("dual", "interleave") else self.block_n

    @property
    def warpgroup_m(self) -> int:
        """Rows of the tile that one consumer warpgroup computes and stores."""
        return self.block_m if self.schedule == "pingpong" else self.block_m // CONSUMERS

    @property
    def splits(self) -> bool:
        """Whether tiles of the last wave can be halved along M."""
        return self.warpgroup_m % (2 * ROW_BOX) == 0

    @property
    def box_n(self) -> int:
        """Columns of a TMA box of N-major weights."""
        return next((width for width in (64, 32) if self.block_n % width == 0), self.block_n)

    @property
    def out_box_n(self) -> int:
        """Columns of a TMA box of the result."""
        return 32 if self.block_n % 32 == 0 else self.block_n

    @property
    def stage_bytes(self) -> int:
        return (self.block_m + self.columns) * BLOCK_K * ELEMENT_BYTES

    @property
    def out_box_bytes(self) -> int:
        """One buffer of the result for every consumer."""
        return CONSUMERS * ROW_BOX * self.out_box_n * ELEMENT_BYTES

    @property
    def stages(self) -> int:
        """As many as fit beside two result buffers a consumer."""
        room = SHARED_BYTES - MIN_OUT_STAGES * self.out_box_bytes - BARRIER_SPACE
        return min(MAX_STAGES, room // self.stage_bytes)

    @property
    def out_stages(self) -> int:
        """What the stages leave room for."""
        room = SHARED_BYTES - self.stages * self.stage_bytes - BARRIER_SPACE
        return min(MAX_OUT_STAGES, room // self.out_box_bytes)

    @property
    def shared_bytes(self) -> int:
        barriers = 2 * self.stages * BARRIER_BYTES
        total = self.stages * self.stage_bytes + self.out_stages * self.out_box_bytes + barriers
        return -(-total // 1024) * 1024

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA boxes as [contiguous elements, rows, bytes of swizzle span (16: none)].

        In a cluster, one CTA's multicast slice.
        """
        boxes = {
            "x": [BLOCK_K, ROW_BOX // self.cluster_n, 128],
            "out": [self.out_box_n, ROW_BOX, 64 if self.out_box_n == 32 else 16],
        }
        for major in self.majors:
            along_k = [BLOCK_K, self.weight_n // self.cluster_m, 128]
            along_n = [self.box_n, BLOCK_K // self.cluster_m, 2 * self.box_n]
            boxes[f"weight_{major}"] = along_n if major == "n" else along_k
        return boxes

    def source(self) -> str:
        """The translation unit: one entry per weight layout."""
        mma_n = self.columns if self.columns <= 256 else self.block_n
        lines = ["#define CUTLASS_ENABLE_GDC_FOR_SM90"]
        if not {mma_n, self.out_box_n} <= set(COMMON_WIDTHS):
            lines.append("#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED")
        lines.append('#include "kernel.cuh"')
        for major in self.majors:
            arguments = (
                self.entry(major),
                self.family.capitalize(),
                self.schedule.capitalize(),
                self.block_m,
                self.block_n,
                self.cluster_m,
                self.cluster_n,
                self.stages,
                self.out_stages,
                MAJORS[major],
                PACKINGS.get(major, 0),
                self.shared_bytes,
                self.box_n,
                self.out_box_n,
            )
            lines.append(f"CUSWIGLU_ENTRY({', '.join(map(str, arguments))})")
        return "\n".join(lines) + "\n"


#: Those that won on an H200 and their siblings without a cluster, and one or two of every other
#: kind; kernels_cu/RESULTS.md has the measurements, and what was tried and lost.
INSTANCES = tuple(
    Instance(family, schedule, block_m, block_n, cluster_m, cluster_n)
    for family, schedule, block_m, block_n, clusters in (
        ("dual", "pingpong", 128, 96, ((1, 1), (2, 1))),
        ("dual", "pingpong", 128, 80, ((1, 1), (2, 1))),
        ("dual", "pingpong", 128, 64, ((1, 1), (2, 1))),
        ("dual", "cooperative", 128, 128, ((1, 1), (2, 1))),
        ("interleave", "pingpong", 128, 96, ((2, 1),)),
        ("interleave", "cooperative", 128, 128, ((2, 1),)),
        ("sync", "pingpong", 128, 96, ((1, 1),)),
        ("plain", "pingpong", 128, 128, ((1, 1), (2, 1))),
        ("plain", "pingpong", 128, 96, ((2, 1),)),
        ("plain", "pingpong", 128, 192, ((2, 1),)),
    )
    for cluster_m, cluster_n in clusters
)
