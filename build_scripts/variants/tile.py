"""Kernels of tiles of the result: the table, and what follows from each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import BLOCK_K, MMA_ROWS, SHARED_BYTES
from .elements import MAJORS, PACKINGS, keyed

ELEMENT_BYTES = 2
CONSUMERS = 2  # warpgroups, beside one producer warpgroup
THREADS = 128 * (1 + CONSUMERS)
BARRIER_BYTES = 8
SMALL_SPACE = 2048  # of barriers and biases
MAX_STAGES = 8
MIN_OUT_STAGES, MAX_OUT_STAGES = 2, 4
OUT_BOX_N = 32  # columns of a TMA box of the result
MIN_WIDTH = 64  # of a column of tiles, if its kernel can choose
MAX_NARROWING = 32  # columns: each width is a code path of its own

#: Families -> the names they have in the kernels' sources.
FAMILIES = {
    "dual": "Dual",
    "sync": "Sync",
    "sync-late": "SyncLate",
    "sync-bare": "SyncBare",
    "interleave": "Interleave",
    "plain": "Plain",
}
ABLATED_FAMILIES = ("sync-late", "sync-bare")  # not in the package
#: Widths of WGMMA that CuTe's small header has (BF16); others cost a larger header.
COMMON_WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Instance:
    """One kernel: a CTA computes block_m x block_n elements of the result.

    `raster_rows` is the rows of clusters that are walked before the next column of tiles (the
    default of a run-time argument). `narrowest` is the least width of a column of tiles, if it is
    not what its kind can have.
    """

    family: str  # of FAMILIES
    schedule: str  # pingpong, cooperative
    block_m: int
    block_n: int
    cluster_m: int
    raster_rows: int = 16
    narrowest: int | None = None

    @property
    def name(self) -> str:
        tile = f"{self.block_m}x{self.block_n}"
        return f"{self.family}_{self.schedule}_{tile}_{self.cluster_m}x1"

    @property
    def majors(self) -> tuple[str, ...]:
        """Weight layouts it has entries for: N-major needs swizzled boxes along N."""
        if self.family == "interleave":
            return tuple(PACKINGS)
        return ("k", "n") if self.block_n % 32 == 0 else ("k",)

    @property
    def keys(self) -> tuple[str, ...]:
        """What entries are known by; ablations have no extras and no FP16."""
        return self.majors if self.family in ABLATED_FAMILIES else tuple(keyed(self.majors))

    def entry(self, key: str) -> str:
        return f"{self.name}_{key}".replace("-", "_")

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

    def narrowing(self, major: str) -> int:
        """Steps in which columns of tiles can be narrower than block_n; 0: they cannot.

        Weights of a stage are moved in whole atoms of shared memory's layout.
        """
        of_its_kind = (
            self.family not in ("sync", "sync-late", "sync-bare")
            and self.schedule == "pingpong"
            and self.cluster_m > 1  # without, wins where there are many waves, however uneven
        )
        if not of_its_kind and self.narrowest is None:
            return 0
        return {"k": 8, "p8": 8, "n": self.box_n, "p1": 0}[major]

    def widths(self, major: str) -> list[int]:
        """Widths that a column of tiles can have, widest first."""
        step = self.narrowing(major)
        if not step:
            return [self.block_n]
        narrowest = min(self.block_n, max(MIN_WIDTH, self.block_n - MAX_NARROWING))
        if self.narrowest is not None:
            narrowest = self.block_n - (self.block_n - self.narrowest) // step * step
        return list(range(self.block_n, narrowest - 1, -step))

    @property
    def box_n(self) -> int:
        """Columns of a TMA box of N-major weights."""
        return next((width for width in (64, 32) if self.block_n % width == 0), self.block_n)

    @property
    def slices(self) -> int:
        """How many CTAs of a cluster load a part of each weight; two load one of a pair each."""
        return 1 if self.family == "dual" and self.cluster_m == 2 else self.cluster_m

    def fitted(self, major: str) -> bool:
        """Whether boxes of weights have just the columns of a launch's widest tiles."""
        whole = self.family == "dual" and self.slices == 1
        return whole and major == "k" and self.narrowing(major) > 0

    @property
    def stage_bytes(self) -> int:
        return (self.block_m + self.columns) * BLOCK_K * ELEMENT_BYTES

    @property
    def out_box_bytes(self) -> int:
        """One buffer of the result for every consumer."""
        return CONSUMERS * MMA_ROWS * OUT_BOX_N * ELEMENT_BYTES

    @property
    def stages(self) -> int:
        """As many as fit beside two result buffers a consumer."""
        room = SHARED_BYTES - MIN_OUT_STAGES * self.out_box_bytes - SMALL_SPACE
        return min(MAX_STAGES, room // self.stage_bytes)

    @property
    def out_stages(self) -> int:
        """What the stages leave room for."""
        room = SHARED_BYTES - self.stages * self.stage_bytes - SMALL_SPACE
        return min(MAX_OUT_STAGES, room // self.out_box_bytes)

    @property
    def shared_bytes(self) -> int:
        barriers = 2 * self.stages * BARRIER_BYTES
        weights = 1 if self.family == "plain" else 2
        biases = CONSUMERS * weights * self.block_n * ELEMENT_BYTES
        boxes = self.stages * self.stage_bytes + self.out_stages * self.out_box_bytes
        return -(-(boxes + barriers + biases) // 1024) * 1024

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA boxes as [contiguous elements, rows, bytes of swizzle span (16: none)].

        In a cluster, one CTA's multicast slice. Of `fitted` weights, the most rows of a box.
        """
        boxes = {
            "x": [BLOCK_K, self.block_m, 128],
            "out": [OUT_BOX_N, MMA_ROWS, 2 * OUT_BOX_N],
        }
        for major in self.majors:
            along_k = [BLOCK_K, self.weight_n // self.slices, 128]
            along_n = [self.box_n, BLOCK_K // self.slices, 2 * self.box_n]
            boxes[f"weight_{major}"] = along_n if major == "n" else along_k
        return boxes

    def facts(self) -> dict[str, Any]:
        return {
            "schedule": self.schedule,
            "block_m": self.block_m,
            "block_n": self.block_n,
            "cluster_m": self.cluster_m,
            "stages": self.stages,
            "threads": THREADS,
            "shared_bytes": self.shared_bytes,
            "raster_rows": self.raster_rows,
            "widths": {major: self.widths(major) for major in self.majors},
            "boxes": self.boxes,
            "fitted_boxes": [major for major in self.majors if self.fitted(major)],
        }

    def mma_widths(self) -> set[int]:
        """Widths of WGMMA that the source needs."""
        columns = {
            width * self.columns // self.block_n
            for major in self.majors
            for width in self.widths(major)
        }
        return {OUT_BOX_N, *(n if n <= 256 else n // 2 for n in columns)}

    def source(self) -> str:
        """The translation unit, with an entry of every key."""
        lines = ["#define CUTLASS_ENABLE_GDC_FOR_SM90"]
        if not self.mma_widths() <= set(COMMON_WIDTHS):
            lines.append("#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED")
        lines.append('#include "impls/sm90_tile.cuh"')
        named = keyed(self.majors)
        for key in self.keys:
            major, element, extras = named[key]
            arguments = (
                self.entry(key),
                element,
                extras,
                FAMILIES[self.family],
                self.schedule.capitalize(),
                self.block_m,
                self.block_n,
                self.cluster_m,
                self.stages,
                self.out_stages,
                MAJORS[major],
                PACKINGS.get(major, 0),
                self.narrowing(major),
                self.widths(major)[-1],
                self.shared_bytes,
                self.box_n,
                str(self.fitted(major)).lower(),
            )
            lines.append(f"CUSWIGLU_ENTRY({', '.join(map(str, arguments))})")
        return "\n".join(lines) + "\n"


#: Those that won on an H200 and their siblings without a cluster, and one or two of every other
#: kind; docs/tuning-log.md has the measurements, and what was tried and lost.
INSTANCES = (
    *(
        Instance(family, schedule, block_m, block_n, cluster_m)
        for family, schedule, block_m, block_n, clusters in (
            ("dual", "pingpong", 128, 96, (1, 2)),
            ("dual", "pingpong", 128, 80, (2,)),
            ("dual", "cooperative", 128, 128, (2,)),
            ("interleave", "pingpong", 128, 96, (2,)),
            ("interleave", "cooperative", 128, 128, (2,)),
            ("sync", "pingpong", 128, 96, (1,)),
            ("plain", "pingpong", 128, 128, (1, 2)),
            ("plain", "pingpong", 128, 192, (2,)),
        )
        for cluster_m in clusters
    ),
    # For 65 to 256 tokens: narrow tiles, so that one row or two of them fill all SMs.
    Instance("dual", "cooperative", 128, 64, 1, narrowest=32),
    # Wide ones, so that an SM loads X once or twice, and not for every few columns.
    Instance("dual", "cooperative", 128, 144, 1, narrowest=104),
)

#: Kernel-1 with the activation elsewhere and without it: not in the package, for they are slower or
#: wrong, but built on demand (`python -m build_scripts --ablations`) to be timed beside it.
ABLATIONS = tuple(
    Instance(family, "pingpong", 128, 96, 1) for family in ("sync", "sync-late", "sync-bare")
)
