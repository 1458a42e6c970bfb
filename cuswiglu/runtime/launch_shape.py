"""Launch shapes: grid, cluster, shared memory and TMA boxes of a kernel for a problem."""

from __future__ import annotations

from dataclasses import dataclass

from ..kernels import decode, manifest
from ..kernels.decode_variant import DecodeVariant
from ..kernels.tile import TileVariant
from ..kernels.tile_columns import Columns, uniform
from ..kernels.variant import Variant
from ..problem import ELEMENT_BYTES, Problem
from ..selection.select import Choice
from .driver import Driver, DriverError


@dataclass(frozen=True)
class LaunchShape:
    """What a launch is made of.

    `columns`, and so many `rows` of `tokens`, say how the result is cut; `boxes` are of the
    operands that have a TMA descriptor, x, the weights and out: without one, a kernel is given
    out's address.
    """

    columns: Columns
    rows: int
    tokens: int
    cluster: int  # CTAs
    clusters: int
    shared_bytes: int
    boxes: tuple[tuple[int, int, int], ...]
    integers: tuple[int, ...]


class LoadedKernel:
    """A kernel loaded on the problem's device, and how many of its clusters run there at once."""

    def __init__(self, kernel: Variant, problem: Problem, cuda: Driver) -> None:
        self._kernel, self._cuda = kernel, cuda
        self._device = problem.device.index
        self._entry = kernel.entry(problem.major, problem.dtype, extras=problem.extras)
        self.function = cuda.kernel(
            manifest.cubin(kernel), kernel.sha256, self._entry, self._device, kernel.most_shared
        )

    def clusters(self, cluster: int, shared_bytes: int) -> int:
        """Clusters of so many CTAs, each with so much shared memory.

        Raises
        ------
        DriverError
            If there is no room for one.
        """
        shape = (cluster, 1)
        probe = self._cuda.config(shape, shape, self._kernel.threads, shared_bytes)
        found = self._cuda.resident_clusters(self.function, probe, self._entry)
        if found < 1:
            raise DriverError(
                f"no cluster of {self._kernel.name} fits on CUDA device {self._device} (a MIG "
                "slice?): use variant='cublas', or an instance with cluster 1x1"
            )
        return found


def of_tiles(
    kernel: Variant, problem: Problem, choice: Choice, resident: LoadedKernel
) -> LaunchShape:
    assert isinstance(kernel, TileVariant)
    at_once = resident.clusters(kernel.cluster_m, kernel.shared_bytes)
    columns = kernel.columns(problem.m, problem.n, problem.major, at_once)
    rows = kernel.rows(problem.m)
    weight = kernel.weight_box(problem.major, columns)
    return LaunchShape(
        columns=columns,
        rows=rows,
        tokens=kernel.block_m * kernel.cluster_m,
        cluster=kernel.cluster_m,
        clusters=min(rows * columns.count, at_once),
        shared_bytes=kernel.shared_bytes,
        boxes=(kernel.box("x"), weight, weight, kernel.box("out")),
        integers=(
            problem.m,
            problem.n,
            problem.k,
            choice.raster_rows or kernel.raster_rows,
            columns.wide,
            columns.wide_width,
            columns.narrow_width,
        ),
    )


def of_decode(
    kernel: Variant, problem: Problem, choice: Choice, resident: LoadedKernel
) -> LaunchShape:
    assert isinstance(kernel, DecodeVariant)
    split = choice.split
    laid = None if split is None else decode.layout(kernel, problem, split)
    if split is None or laid is None:
        raise ValueError(f"{kernel.name} cannot be launched with {split} for this problem")
    # One CTA an SM takes tiles in turns, unless a few more, beside others, take all at once.
    alone = resident.clusters(split.ranks, kernel.most_shared)
    beside = resident.clusters(split.ranks, laid.shared_bytes)
    all_at_once = laid.items <= min(beside, alone + alone // 8)
    span = kernel.block_k * ELEMENT_BYTES
    weight = (kernel.block_k, laid.box_rows, span)
    if problem.major == "n":
        weight = (laid.box_rows, kernel.block_k, span)
    return LaunchShape(
        columns=uniform(problem.n, split.rows),
        rows=-(-problem.m // kernel.tokens),
        tokens=kernel.tokens,
        cluster=split.ranks,
        clusters=laid.items if all_at_once else min(laid.items, alone),
        shared_bytes=laid.shared_bytes,
        boxes=((kernel.block_k, laid.x_rows, span), weight, weight),
        integers=(
            problem.m,
            problem.n,
            problem.k,
            problem.out.stride,
            split.rows,
            laid.stages,
        ),
    )
