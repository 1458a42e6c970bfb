"""Launch shapes: grid, cluster, shared memory, TMA boxes and integers of a kernel for a problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .tile_columns import Cut

#: Number of clusters that run on the device at once, of so many CTAs, each with so many bytes of
#: dynamic shared memory.
ResidentClusters = Callable[[int, int], int]


@dataclass(frozen=True)
class LaunchShape:
    """Grid, cluster, shared memory, boxes and integers of a launch.

    Attributes
    ----------
    columns, rows : Cut
        How the result's N and M are cut into tiles.
    cluster, clusters : int
        CTAs of a cluster, and clusters of the grid.
    shared_bytes : int
        Dynamic shared memory of a CTA.
    boxes : dict of str to (int, int, int)
        TMA boxes by argument, of the operands that have a descriptor: x, w_first, w_second, and
        out, unless the kernel is given its address.
    integers : dict of str to int
        Integer arguments by name.
    """

    columns: Cut
    rows: Cut
    cluster: int
    clusters: int
    shared_bytes: int
    boxes: dict[str, tuple[int, int, int]]
    integers: dict[str, int]
