"""What kernels load and store, tile by tile: all of the result, from the right weights.

The kernels' own scheduler and boxes, compiled for the host: see host_scheduler.py and
host_boxes.py.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from build_scripts.variants import ABLATIONS, INSTANCES
from build_scripts.variants.base import BLOCK_K
from build_scripts.variants.tile import Instance
from cuswiglu.kernels.tile_columns import Columns, best, uniform
from tests.helpers.host_boxes import HostBoxes
from tests.helpers.host_scheduler import HostScheduler

#: Those of the package, those that are built to be timed, and other shapes that compile.
TABLE = [
    *dict.fromkeys((*INSTANCES, *ABLATIONS)),
    Instance("dual", "pingpong", 64, 128, 1),
    Instance("dual", "pingpong", 128, 64, 4),
    Instance("interleave", "pingpong", 128, 96, 1),
    Instance("plain", "cooperative", 256, 128, 4),
]
SHAPES = sorted({(i.block_m, i.cluster_m) for i in TABLE})
BY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
BY_ENTRY = pytest.mark.parametrize(
    ("instance", "major"),
    [pytest.param(i, major, id=i.entry(major)) for i in TABLE for major in i.majors],
)
BY_WIDTH = pytest.mark.parametrize(
    ("instance", "major", "width"),
    [
        pytest.param(i, major, width, id=f"{i.entry(major)}-{width}")
        for i in TABLE
        for major in i.majors
        for width in i.widths(major)
    ],
)


def boxes_for(instance, major, width):
    """Columns that boxes of weights can have in a launch that has tiles of this width."""
    if not instance.fitted(major):
        return [instance.block_n]
    return [widest for widest in instance.widths(major) if widest >= width]


BY_BOX = pytest.mark.parametrize(
    ("instance", "major", "width", "box"),
    [
        pytest.param(i, major, width, box, id=f"{i.entry(major)}-{width}-{box}")
        for i in TABLE
        for major in i.majors
        for width in i.widths(major)
        for box in boxes_for(i, major, width)
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
    m, n, columns = 3 * block_m * cluster_m, 464, Columns(2, 96, narrow=4, narrow_width=72)
    first, *others = (
        scheduler.tiles(shape, m, n, 2, columns, 0, 1, peer) for peer in range(cluster_m)
    )
    assert set(first[:, 0]) == {row * block_m * cluster_m for row in range(3)}
    for peer, tiles in enumerate(others, start=1):
        np.testing.assert_array_equal(
            tiles - first, np.tile([peer * block_m, 0, 0], (len(first), 1))
        )


@BY_WIDTH
def test_every_width_of_a_column_has_its_own_code(boxes, instance, major, width):
    assert boxes.code_width(instance, major, width) == width


# Stores


def stores_of_tile(boxes, instance, major, row, column, width):
    """The boxes that both warpgroups, or the one that has the tile, store of it."""
    shares = range(0, instance.block_m, instance.warpgroup_m)
    for first in shares:
        for found in boxes.stores(instance, major, width, row + first, column):
            yield row + first, found


def times_stored(boxes, instance, major, width):
    """How often each element of a tile is stored, with a margin of a box around it."""
    box_columns, box_rows, _ = instance.boxes["out"]
    count = np.zeros((instance.block_m + 2 * box_rows, width + 2 * box_columns), int)
    for _, box in stores_of_tile(boxes, instance, major, box_rows, box_columns, width):
        count[box.row : box.row + box_rows, box.column : box.column + box_columns] += 1
    tile = count[box_rows:-box_rows, box_columns:-box_columns].copy()
    assert count.sum() == tile.sum(), "a box reaches beyond the tile"
    return tile


@BY_WIDTH
def test_the_boxes_of_a_tile_cover_it_and_nothing_beyond(boxes, instance, major, width):
    assert (times_stored(boxes, instance, major, width) >= 1).all()


@BY_WIDTH
def test_only_the_last_two_boxes_overlap_where_the_width_is_no_multiple_of_a_box(
    boxes, instance, major, width
):
    box_columns, _, _ = instance.boxes["out"]
    last = width - box_columns
    expected = np.ones(width, int)
    expected[last : last + -width % box_columns] = 2
    assert (times_stored(boxes, instance, major, width) == expected).all()


@BY_WIDTH
def test_a_box_has_the_accumulators_of_its_own_rows_and_columns(boxes, instance, major, width):
    """Of 8 columns and 64 rows, a thread of a WGMMA has 4 accumulators; packed ones count twice."""
    columns_each = 1 if major.startswith("p") else 2
    box_columns, box_rows, _ = instance.boxes["out"]
    for first_row, box in stores_of_tile(boxes, instance, major, 256, 960, width):
        row_block, first = divmod(box.first, 1000)
        assert box.row == first_row + row_block * box_rows
        assert box.column == 960 + first * columns_each
        assert box.last - box.first + 1 == box_columns // columns_each


def cuts(instance, major):
    """Every pair of widths that a launch can have, and every width alone; N has a tail."""
    widths = instance.widths(major)
    for width in widths:
        yield 2 * width + 8, uniform(2 * width + 8, width)
    for wide, narrow in itertools.combinations(widths, 2):
        yield 2 * wide + narrow + 8, Columns(2, wide, narrow=2, narrow_width=narrow)


@BY_ENTRY
def test_a_launch_stores_every_element_from_its_own_tile(boxes, scheduler, instance, major):
    box_columns, box_rows, _ = instance.boxes["out"]
    shape = instance.block_m, instance.cluster_m
    m = instance.block_m * instance.cluster_m + 72
    for n, columns in cuts(instance, major):
        owners = np.full((m, n), -1)
        for number, (row, column, width) in enumerate(
            all_tiles(scheduler, shape, m, n, 16, columns, 3)
        ):
            for _, box in stores_of_tile(boxes, instance, major, row, column, width):
                part = owners[box.row : box.row + box_rows, box.column : box.column + box_columns]
                assert np.isin(part, [-1, number]).all(), (columns, box)
                part[...] = number
        assert (owners >= 0).all(), columns


# Loads


M0, N0, K0 = 512, 960, 3 * BLOCK_K


def loaded(boxes, instance, major, width, box, step_pass):
    """The weights of one stage of each CTA: arrays of (operand, N, K) at (column, step of K).

    What is written twice is -1, and what never is -99: boxes may have fewer columns than there is
    room for.
    """
    inner_extent, outer_extent, _ = instance.boxes[f"weight_{major}"]
    if instance.fitted(major):
        outer_extent = box
    shape = (instance.cluster_m, instance.columns, BLOCK_K, 3)
    stages = np.full(shape, -99)
    for peer in range(instance.cluster_m):
        found = boxes.loads(
            instance, major, M0, N0, width, box, K0, step_pass=step_pass, stage=1, peer=peer
        )
        for part in (part for part in found if part.operand):
            assert part.stage == 1
            offset = part.offset - instance.columns * BLOCK_K
            inner, outer = np.meshgrid(range(inner_extent), range(outer_extent), indexing="ij")
            if major == "n":  # one box_n columns wide behind the other, rows along N
                block, rest = divmod(offset, instance.box_n * BLOCK_K)
                at = block * instance.box_n + inner, rest // instance.box_n + outer
                source = part.inner + inner, part.outer + outer
            else:
                at = offset // BLOCK_K + outer, inner
                source = part.outer + outer, part.inner + inner
            for stage in stages if part.multicast else stages[peer : peer + 1]:
                again = stage[at] != -99
                stage[at] = np.where(
                    again, -1, np.stack([np.full_like(inner, part.operand), *source], axis=-1)
                )
    return stages


def read(boxes, instance, major, width, stage):
    """What the products of a tile read of a stage: as many columns as an accumulator has."""
    first = boxes.first_column(instance, major, width)
    return stage[first : first + width * instance.columns // instance.block_n]


@BY_BOX
def test_products_read_the_columns_of_their_tile(boxes, instance, major, width, box):
    for step_pass in range(2 if instance.family.startswith("sync") else 1):
        for stage in loaded(boxes, instance, major, width, box, step_pass):
            found = read(boxes, instance, major, width, stage)
            columns = list(range(N0, N0 + width))
            if instance.family == "dual":  # gate beside up
                expected = [(1, n) for n in columns] + [(2, n) for n in columns]
            elif instance.family == "interleave":
                expected = [(1, n) for n in range(2 * N0, 2 * (N0 + width))]
            else:
                expected = [(1 + step_pass, n) for n in columns]
            for step in range(BLOCK_K):
                np.testing.assert_array_equal(found[:, step, :2], expected)
                assert (found[:, step, 2] == K0 + step).all()


@BY_BOX
def test_a_stage_is_loaded_once_and_its_barrier_waits_for_all_of_it(
    boxes, instance, major, width, box
):
    stages = loaded(boxes, instance, major, width, box, 0)
    assert (stages[..., 0] != -1).all()
    x_elements = instance.block_m * BLOCK_K
    for stage in stages:
        weight_elements = (stage[..., 0] > 0).sum()
        assert boxes.stage_bytes(instance, major, box) == 2 * (x_elements + weight_elements)
    room = instance.block_n - box
    assert boxes.stage_bytes(instance, major, box) == instance.stage_bytes - 4 * room * BLOCK_K


@BY_ENTRY
def test_x_is_one_box_of_the_ctas_own_rows(boxes, instance, major):
    widest = instance.block_n
    found = boxes.loads(instance, major, M0, N0, widest, widest, K0, stage=1)
    (x,) = (box for box in found if box.operand == 0)
    assert (x.inner, x.outer) == (K0, M0)
    assert (x.multicast, x.stage, x.offset) == (0, 1, instance.block_m * BLOCK_K)
    assert instance.boxes["x"][:2] == [BLOCK_K, instance.block_m]


@BY_ENTRY
def test_weights_go_to_every_cta_of_a_cluster_and_each_loads_as_much(boxes, instance, major):
    widest = instance.block_n
    counts = set()
    for peer in range(instance.cluster_m):
        found = boxes.loads(instance, major, M0, N0, widest, widest, K0, peer=peer)
        weights = [box for box in found if box.operand]
        assert all(box.multicast == (instance.cluster_m > 1) for box in weights)
        counts.add(len(weights))
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("instance", "major"),
    [
        pytest.param(i, major, id=i.entry(major))
        for i in TABLE
        for major in i.majors
        if (i.family, i.cluster_m) == ("dual", 2)
    ],
)
def test_of_two_ctas_with_gate_and_up_one_loads_gate_and_the_other_up(boxes, instance, major):
    widest = instance.block_n
    for peer in range(2):
        found = boxes.loads(instance, major, M0, N0, widest, widest, K0, peer=peer)
        assert {box.operand for box in found} == {0, 1 + peer}
