"""Kernels of tiles of the result: the table, and what follows from each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cuswiglu.common.device import SHARED_BYTES
from cuswiglu.common.dtypes import ELEMENTS
from cuswiglu.problem import EntryPoint, Layout

from .arguments import TILE, Arguments, declarations
from .base import BLOCK_K, MMA_ROWS, boolean
from .entries import GENERAL, entries, is_general

ELEMENT_BYTES = 2
CONSUMERS = 2  # warpgroups, beside one producer warpgroup
THREADS = 128 * (1 + CONSUMERS)
BARRIER_BYTES = 8
SMALL_SPACE = 2048  # of barriers and biases
MAX_STAGES = 8
MIN_OUT_STAGES, MAX_OUT_STAGES = 2, 4
OUT_BOX_N = 32  # columns of a TMA box of the result
MIN_WIDTH = 64  # of a column of tiles, if its variant can choose
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
class TileSource:
    """A variant of tiles: a CTA computes block_m x block_n elements of the result.

    `raster_rows` is the rows of clusters that are walked before the next column of tiles (the
    default of a run-time argument).
    """

    family: str  # of FAMILIES
    schedule: str  # pingpong, cooperative
    block_m: int
    block_n: int
    cluster_m: int
    raster_rows: int = 16

    @property
    def name(self) -> str:
        """Name in the manifest: family_schedule_tile_cluster."""
        tile = f"{self.block_m}x{self.block_n}"
        return f"{self.family}_{self.schedule}_{tile}_{self.cluster_m}x1"

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Weight layouts it has entries for: N-major needs swizzled boxes along N."""
        if self.family == "interleave":
            return Layout.PACKED_8, Layout.PACKED_1
        return (Layout.K, Layout.N) if self.block_n % 32 == 0 else (Layout.K,)

    @property
    def entries(self) -> tuple[EntryPoint, ...]:
        """Its entry points; ablations have no general epilogue and no FP16."""
        if self.family in ABLATED_FAMILIES:
            return entries(self.name, self.layouts, ("silu",), ("bfloat16",))
        return entries(
            self.name, self.layouts, ("none" if self.family == "plain" else "silu", GENERAL)
        )

    @property
    def arguments(self) -> Arguments:
        """Arguments of its entry points."""
        return TILE

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

    def narrowing(self, layout: Layout) -> int:
        """Return the steps in which columns of tiles can be narrower than block_n; 0: they cannot.

        Weights of a stage are moved in whole atoms of shared memory's layout.
        """
        of_its_kind = (
            self.family not in ("sync", "sync-late", "sync-bare")
            and self.schedule == "pingpong"
            and self.cluster_m > 1  # without, wins where there are many waves, however uneven
        )
        if not of_its_kind:
            return 0
        steps = {Layout.K: 8, Layout.PACKED_8: 8, Layout.N: self.box_n, Layout.PACKED_1: 0}
        return steps[layout]

    def widths(self, layout: Layout) -> list[int]:
        """List the widths that a column of tiles can have, widest first."""
        step = self.narrowing(layout)
        if not step:
            return [self.block_n]
        narrowest = min(self.block_n, max(MIN_WIDTH, self.block_n - MAX_NARROWING))
        return list(range(self.block_n, narrowest - 1, -step))

    @property
    def box_n(self) -> int:
        """Columns of a TMA box of N-major weights."""
        return next((width for width in (64, 32) if self.block_n % width == 0), self.block_n)

    @property
    def slices(self) -> int:
        """Number of CTAs of a cluster that share a weight's load; two load one of a pair each."""
        return 1 if self.family == "dual" and self.cluster_m == 2 else self.cluster_m

    def fitted(self, layout: Layout) -> bool:
        """Whether boxes of weights have just the columns of a launch's widest tiles."""
        whole = self.family == "dual" and self.slices == 1
        return whole and layout is Layout.K and self.narrowing(layout) > 0

    @property
    def stage_bytes(self) -> int:
        """Size of a stage: a tile of X, and tiles of the weights."""
        return (self.block_m + self.columns) * BLOCK_K * ELEMENT_BYTES

    @property
    def out_box_bytes(self) -> int:
        """Size of one buffer of the result for every consumer."""
        return CONSUMERS * MMA_ROWS * OUT_BOX_N * ELEMENT_BYTES

    @property
    def stages(self) -> int:
        """Number of stages: as many as fit beside two result buffers a consumer."""
        room = SHARED_BYTES - MIN_OUT_STAGES * self.out_box_bytes - SMALL_SPACE
        return min(MAX_STAGES, room // self.stage_bytes)

    @property
    def out_stages(self) -> int:
        """Number of result buffers a consumer: as many as the stages leave room for."""
        room = SHARED_BYTES - self.stages * self.stage_bytes - SMALL_SPACE
        return min(MAX_OUT_STAGES, room // self.out_box_bytes)

    @property
    def shared_bytes(self) -> int:
        """Size of the shared memory of a CTA."""
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
        for layout in self.layouts:
            along_k = [BLOCK_K, self.weight_n // self.slices, 128]
            along_n = [self.box_n, BLOCK_K // self.slices, 2 * self.box_n]
            boxes[f"weight_{layout}"] = along_n if layout is Layout.N else along_k
        return boxes

    def facts(self) -> dict[str, Any]:
        """Return the part of its manifest row that other kinds do not have."""
        return {
            "kind": "tile",
            "schedule": self.schedule,
            "block_m": self.block_m,
            "block_n": self.block_n,
            "cluster_m": self.cluster_m,
            "stages": self.stages,
            "threads": THREADS,
            "shared_bytes": self.shared_bytes,
            "raster_rows": self.raster_rows,
            "widths": {layout: self.widths(layout) for layout in self.layouts},
            "boxes": self.boxes,
            "fitted_boxes": [layout for layout in self.layouts if self.fitted(layout)],
        }

    def mma_widths(self) -> set[int]:
        """Find the widths of WGMMA that the source needs."""
        columns = {
            width * self.columns // self.block_n
            for layout in self.layouts
            for width in self.widths(layout)
        }
        return {OUT_BOX_N, *(n if n <= 256 else n // 2 for n in columns)}

    def translation_unit(self) -> str:
        """Write the CUDA C++ of all its entry points."""
        lines = ["#define CUTLASS_ENABLE_GDC_FOR_SM90"]
        if not self.mma_widths() <= set(COMMON_WIDTHS):
            lines.append("#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED")
        if self.family in ABLATED_FAMILIES:
            lines.append('#include "ablations.cuh"')
        lines.append('#include "impls/sm90_tile.cuh"')
        lines.append(declarations(self.arguments, "cuswiglu::TileKernel"))
        for entry in self.entries:
            traits = f"{entry.name}_traits"
            arguments = [ELEMENTS[entry.w].cutlass, *self.template_arguments(entry.layout)]
            lines += [
                f"using {traits} = cuswiglu::TileTraits<{', '.join(arguments)}>;",
                f"static_assert(sizeof({traits}::SharedStorage) == {self.shared_bytes}, "
                '"manifest: shared memory");',
                f'static_assert({traits}::kBoxN == {self.box_n}, "manifest: TMA boxes");',
                f"static_assert({traits}::kFittedBoxes == {boolean(self.fitted(entry.layout))}, "
                '"manifest: TMA boxes");',
                f"CUSWIGLU_ENTRY({entry.name}, {traits}, {boolean(is_general(entry))}, 1)",
            ]
        return "\n".join(lines) + "\n"

    def template_arguments(self, layout: Layout) -> list[str]:
        """Arguments of cuswiglu::TileSizes for weights of a layout, in order."""
        arguments = (
            f"cuswiglu::{FAMILIES[self.family]}",
            f"cuswiglu::Schedule::{self.schedule.capitalize()}",
            self.block_m,
            self.block_n,
            self.cluster_m,
            self.stages,
            self.out_stages,
            f"cuswiglu::Major::{'MN' if layout == 'n' else 'K'}",
            layout.packing,
            self.narrowing(layout),
            self.widths(layout)[-1],
        )
        return [str(argument) for argument in arguments]


#: Variants that won on an H200 and their siblings without a cluster, and one or two of every other
#: kind; docs/tuning-log.md has the measurements, and what was tried and lost.
TILE_VARIANTS = (
    *(
        TileSource(family, schedule, block_m, block_n, cluster_m)
        for family, schedule, block_m, block_n, clusters in (
            ("dual", "pingpong", 128, 96, (1, 2)),
            ("dual", "pingpong", 128, 80, (2,)),
            ("interleave", "pingpong", 128, 96, (2,)),
            ("interleave", "cooperative", 128, 128, (2,)),
            ("sync", "pingpong", 128, 96, (1,)),
            ("plain", "pingpong", 128, 128, (1, 2)),
            ("plain", "pingpong", 128, 192, (2,)),
        )
        for cluster_m in clusters
    ),
)

#: Kernel-1 with the activation elsewhere and without it: not in the package, for they are slower or
#: wrong, but built on demand (`python -m build_scripts --ablations`) to be timed beside it.
ABLATIONS = tuple(
    TileSource(family, "pingpong", 128, 96, 1) for family in ("sync", "sync-late", "sync-bare")
)
