"""What kernels load and store, tile by tile: all of the result, from the right weights.

The kernels' own scheduler and boxes, compiled for the host: see host_scheduler.py and
host_boxes.py.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from build_scripts.variants import ABLATIONS, TILE_VARIANTS
from build_scripts.variants.base import BLOCK_K
from build_scripts.variants.tile import TileSource
from cuswiglu.kernels.tile_columns import Cut, best, uniform
from tests.helpers.host_boxes import HostBoxes
from tests.helpers.host_scheduler import HostScheduler

#: Those of the package, those that are built to be timed, and other shapes that compile.
TABLE = [
    *dict.fromkeys((*TILE_VARIANTS, *ABLATIONS)),
    TileSource("dual", "pingpong", 64, 128, 1),
    TileSource("dual", "pingpong", 128, 64, 4),
    TileSource("interleave", "pingpong", 128, 96, 1),
    TileSource("plain", "cooperative", 256, 128, 4),
]
SHAPES = sorted({(i.block_m, i.cluster_m) for i in TABLE})
BY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
BY_ENTRY = pytest.mark.parametrize(
    ("variant", "layout"),
    [pytest.param(i, layout, id=f"{i.name}_{layout}") for i in TABLE for layout in i.layouts],
)
BY_WIDTH = pytest.mark.parametrize(
    ("variant", "layout", "width"),
    [
        pytest.param(i, layout, width, id=f"{i.name}_{layout}-{width}")
        for i in TABLE
        for layout in i.layouts
        for width in i.widths(layout)
    ],
)


def boxes_for(variant, layout, width):
    """Columns that boxes of weights can have in a launch that has tiles of this width."""
    if not variant.fitted(layout):
        return [variant.block_n]
    return [widest for widest in variant.widths(layout) if widest >= width]


BY_BOX = pytest.mark.parametrize(
    ("variant", "layout", "width", "box"),
    [
        pytest.param(i, layout, width, box, id=f"{i.name}_{layout}-{width}-{box}")
        for i in TABLE
        for layout in i.layouts
        for width in i.widths(layout)
        for box in boxes_for(i, layout, width)
    ],
)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    return HostScheduler(tmp_path_factory.mktemp("scheduler"), SHAPES)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    return HostBoxes(tmp_path_factory.mktemp("boxes"), TABLE)


# Tiles


def all_tiles(scheduler, shape, m, n, raster_rows, columns, grid):
    """Every tile that a grid of persistent clusters computes, of all their CTAs."""
    _, cluster_m = shape
    found = [
        scheduler.tiles(shape, m, n, raster_rows, columns, first, grid, peer)
        for first in range(grid)
        for peer in range(cluster_m)
    ]
    return np.concatenate(found)


@BY_SHAPE
def test_every_element_is_of_exactly_one_tile(scheduler, shape):
    block_m, cluster_m = shape
    draw = random.Random(str(shape))
    for _ in range(40):
        m, n = draw.randint(1, 5 * block_m * cluster_m), 8 * draw.randint(1, 120)
        rows, resident = -(-m // (block_m * cluster_m)), draw.choice([1, 2, 5, 66])
        columns = best(n, rows, resident, draw.choice([(96, 88, 80, 72, 64), (96, 64), (192, 160)]))
        tiles = all_tiles(scheduler, shape, m, n, draw.randint(1, 6), columns, resident)
        count = np.zeros((m, n), int)
        for row, column, width in tiles:
            count[row : row + block_m, column : column + width] += 1
        assert (count == 1).all(), (m, n, columns)
        assert len(tiles) == rows * columns.count * cluster_m


@BY_SHAPE
def test_ctas_of_a_cluster_have_the_same_columns_and_rows_behind_each_other(scheduler, shape):
    block_m, cluster_m = shape
    m, n, columns = 3 * block_m * cluster_m, 464, Cut(2, 96, narrow=4, narrow_width=72)
    first, *others = (
        scheduler.tiles(shape, m, n, 2, columns, 0, 1, peer) for peer in range(cluster_m)
    )
    assert set(first[:, 0]) == {row * block_m * cluster_m for row in range(3)}
    for peer, tiles in enumerate(others, start=1):
        np.testing.assert_array_equal(
            tiles - first, np.tile([peer * block_m, 0, 0], (len(first), 1))
        )


@BY_WIDTH
def test_every_width_of_a_column_has_its_own_code(boxes, variant, layout, width):
    assert boxes.code_width(variant, layout, width) == width


# Stores


def stores_of_tile(boxes, variant, layout, row, column, width):
    """The boxes that both warpgroups, or the one that has the tile, store of it."""
    shares = range(0, variant.block_m, variant.warpgroup_m)
    for first in shares:
        for found in boxes.stores(variant, layout, width, row + first, column):
            yield row + first, found


def times_stored(boxes, variant, layout, width):
    """How often each element of a tile is stored, with a margin of a box around it."""
    box_columns, box_rows, _ = variant.boxes["out"]
    count = np.zeros((variant.block_m + 2 * box_rows, width + 2 * box_columns), int)
    for _, box in stores_of_tile(boxes, variant, layout, box_rows, box_columns, width):
        count[box.row : box.row + box_rows, box.column : box.column + box_columns] += 1
    tile = count[box_rows:-box_rows, box_columns:-box_columns].copy()
    assert count.sum() == tile.sum(), "a box reaches beyond the tile"
    return tile


@BY_WIDTH
def test_the_boxes_of_a_tile_cover_it_and_nothing_beyond(boxes, variant, layout, width):
    assert (times_stored(boxes, variant, layout, width) >= 1).all()


@BY_WIDTH
def test_only_the_last_two_boxes_overlap_where_the_width_is_no_multiple_of_a_box(
    boxes, variant, layout, width
):
    box_columns, _, _ = variant.boxes["out"]
    last = width - box_columns
    expected = np.ones(width, int)
    expected[last : last + -width % box_columns] = 2
    assert (times_stored(boxes, variant, layout, width) == expected).all()


@BY_WIDTH
def test_a_box_has_the_accumulators_of_its_own_rows_and_columns(boxes, variant, layout, width):
    """Of 8 columns and 64 rows, a thread of a WGMMA has 4 accumulators; packed ones count twice."""
    columns_each = 1 if layout.startswith("p") else 2
    box_columns, box_rows, _ = variant.boxes["out"]
    for first_row, box in stores_of_tile(boxes, variant, layout, 256, 960, width):
        assert box.row == first_row + box.row_block * box_rows
        assert box.column == 960 + box.first * columns_each
        assert box.count == box_columns // columns_each


def cuts(variant, layout):
    """Every pair of widths that a launch can have, and every width alone; N has a tail."""
    widths = variant.widths(layout)
    for width in widths:
        yield 2 * width + 8, uniform(2 * width + 8, width)
    for wide, narrow in itertools.combinations(widths, 2):
        yield 2 * wide + narrow + 8, Cut(2, wide, narrow=2, narrow_width=narrow)


@BY_ENTRY
def test_a_launch_stores_every_element_from_its_own_tile(boxes, scheduler, variant, layout):
    box_columns, box_rows, _ = variant.boxes["out"]
    shape = variant.block_m, variant.cluster_m
    m = variant.block_m * variant.cluster_m + 72
    for n, columns in cuts(variant, layout):
        owners = np.full((m, n), -1)
        for number, (row, column, width) in enumerate(
            all_tiles(scheduler, shape, m, n, 16, columns, 3)
        ):
            for _, box in stores_of_tile(boxes, variant, layout, row, column, width):
                part = owners[box.row : box.row + box_rows, box.column : box.column + box_columns]
                assert np.isin(part, [-1, number]).all(), (columns, box)
                part[...] = number
        assert (owners >= 0).all(), columns


# Loads


M0, N0, K0 = 512, 960, 3 * BLOCK_K


def loaded(boxes, variant, layout, width, box, step_pass):
    """The weights of one stage of each CTA: arrays of (operand, N, K) at (column, step of K).

    What is written twice is -1, and what never is -99: boxes may have fewer columns than there is
    room for.
    """
    inner_extent, outer_extent, _ = variant.boxes[f"weight_{layout}"]
    if variant.fitted(layout):
        outer_extent = box
    shape = (variant.cluster_m, variant.columns, BLOCK_K, 3)
    stages = np.full(shape, -99)
    for peer in range(variant.cluster_m):
        found = boxes.loads(variant, layout, M0, N0, width, box, K0, step_pass=step_pass, peer=peer)
        for part in found:
            inner, outer = np.meshgrid(range(inner_extent), range(outer_extent), indexing="ij")
            if layout == "n":  # one box_n columns wide behind the other, rows along N
                block, rest = divmod(part.offset, variant.box_n * BLOCK_K)
                at = block * variant.box_n + inner, rest // variant.box_n + outer
                source = part.inner + inner, part.outer + outer
            else:
                at = part.offset // BLOCK_K + outer, inner
                source = part.outer + outer, part.inner + inner
            for stage in stages:  # every CTA of the cluster gets what one loads
                again = stage[at] != -99
                stage[at] = np.where(
                    again, -1, np.stack([np.full_like(inner, part.operand), *source], axis=-1)
                )
    return stages


def read(boxes, variant, layout, width, stage):
    """What the products of a tile read of a stage: as many columns as an accumulator has."""
    first = boxes.first_column(variant, layout, width)
    return stage[first : first + width * variant.columns // variant.block_n]


@BY_BOX
def test_products_read_the_columns_of_their_tile(boxes, variant, layout, width, box):
    for step_pass in range(2 if variant.family.startswith("sync") else 1):
        for stage in loaded(boxes, variant, layout, width, box, step_pass):
            found = read(boxes, variant, layout, width, stage)
            columns = list(range(N0, N0 + width))
            if variant.family == "dual":  # gate beside up
                expected = [(1, n) for n in columns] + [(2, n) for n in columns]
            elif variant.family == "interleave":
                expected = [(1, n) for n in range(2 * N0, 2 * (N0 + width))]
            else:
                expected = [(1 + step_pass, n) for n in columns]
            for step in range(BLOCK_K):
                np.testing.assert_array_equal(found[:, step, :2], expected)
                assert (found[:, step, 2] == K0 + step).all()


@BY_BOX
def test_a_stage_is_loaded_once_and_its_barrier_waits_for_all_of_it(
    boxes, variant, layout, width, box
):
    stages = loaded(boxes, variant, layout, width, box, 0)
    assert (stages[..., 0] != -1).all()
    x_elements = variant.block_m * BLOCK_K
    for stage in stages:
        weight_elements = (stage[..., 0] > 0).sum()
        assert boxes.stage_elements(variant, layout, box) == x_elements + weight_elements
    room = variant.block_n - box
    expected = variant.stage_bytes // 2 - 2 * room * BLOCK_K
    assert boxes.stage_elements(variant, layout, box) == expected


@BY_ENTRY
def test_each_cta_of_a_cluster_loads_as_many_boxes(boxes, variant, layout):
    widest = variant.block_n
    counts = {
        len(boxes.loads(variant, layout, M0, N0, widest, widest, K0, peer=peer))
        for peer in range(variant.cluster_m)
    }
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("variant", "layout"),
    [
        pytest.param(i, layout, id=f"{i.name}_{layout}")
        for i in TABLE
        for layout in i.layouts
        if (i.family, i.cluster_m) == ("dual", 2)
    ],
)
def test_of_two_ctas_with_gate_and_up_one_loads_gate_and_the_other_up(boxes, variant, layout):
    widest = variant.block_n
    for peer in range(2):
        found = boxes.loads(variant, layout, M0, N0, widest, widest, K0, peer=peer)
        assert {box.operand for box in found} == {1 + peer}
