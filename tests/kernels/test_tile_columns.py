"""Columns of tiles cover N in at most two widths, and leave the busiest cluster little work."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuswiglu.kernels.tile_columns import STEP_COLUMNS, Cut, best, busiest, uniform

#: Widths of kernels that there are, and of some that there could be.
WIDTHS = [(96, 88, 80, 72, 64), (88, 80, 72, 64), (96, 64), (192, 184, 176, 168, 160), (128,)]
#: Clusters that run at once: of one and of two CTAs on an H200, on smaller GPUs, on parts of one.
RESIDENT = [132, 66, 57, 39, 7, 1]


def taken_in_turns(columns, rows, resident, block_n):
    """The most work of a cluster, in full tiles, when cluster c takes tiles c, c + resident, ..."""
    widths = [columns.wide_width] * columns.wide + [columns.narrow_width] * columns.narrow
    tiles = [width for width in widths for _ in range(rows)]
    work = [0] * resident
    for number, width in enumerate(tiles):
        work[number % resident] += width + STEP_COLUMNS
    return max(work) / (block_n + STEP_COLUMNS)


def every_cut(n, widths):
    """All the ways to cut N into columns of one width, or of a wide and a narrow one."""
    for index, wide_width in enumerate(widths):
        yield uniform(n, wide_width)
        for narrow_width in widths[index + 1 :]:
            for wide in range(1, -(-n // wide_width)):
                narrow = -(-(n - wide * wide_width) // narrow_width)
                yield Cut(wide, wide_width, narrow, narrow_width)


# What a cut costs


@given(
    st.builds(Cut, st.integers(0, 12), st.just(96), st.integers(0, 12), st.sampled_from([64])),
    st.integers(1, 9),
    st.integers(1, 40),
)
@example(Cut(2, 96, 3, 64), 1, 2)  # the last wave is of narrow tiles and of one cluster
@example(Cut(3, 96, 2, 64), 1, 2)  # a wave of both widths
@example(Cut(0, 96, 5, 64), 1, 8)  # less than a wave
def test_the_busiest_cluster_is_that_of_clusters_that_take_tiles_in_turns(columns, rows, resident):
    found = busiest(columns, rows, resident, 96)
    assert found == pytest.approx(taken_in_turns(columns, rows, resident, 96))


def test_work_is_counted_in_tiles_of_full_width():
    assert busiest(uniform(960, 96), rows=3, resident=10, block_n=96) == 3


def test_a_narrow_tile_costs_less_than_a_wide_one_but_more_than_its_share_of_columns():
    half = busiest(uniform(48, 48), rows=1, resident=1, block_n=96)
    assert 0.5 < half < 1


# What is chosen


@st.composite
def launches(draw):
    """(n, rows of clusters, resident clusters, widths)."""
    n = 8 * draw(st.integers(1, 2500))
    return n, draw(st.integers(1, 64)), draw(st.integers(1, 132)), draw(st.sampled_from(WIDTHS))


@given(launches())
def test_the_columns_cover_n_and_none_begins_beyond_it(launch):
    n, _, _, _ = launch
    columns = best(*launch)
    widths = [columns.wide_width] * columns.wide + [columns.narrow_width] * columns.narrow
    assert sum(widths) - widths[-1] < n <= sum(widths)
    assert columns.count == len(widths)


@given(launches())
def test_columns_have_at_most_two_of_the_widths_and_the_wide_ones_come_first(launch):
    columns = best(*launch)
    widths = launch[-1]
    assert columns.wide_width in widths
    assert columns.narrow_width in widths
    assert columns.wide >= 1
    assert columns.narrow_width < columns.wide_width or columns.narrow == 0


@given(launches())
def test_no_single_width_has_less_work_for_the_busiest_cluster(launch):
    n, rows, resident, widths = launch
    found = busiest(best(*launch), rows, resident, widths[0])
    for width in widths:
        assert found <= busiest(uniform(n, width), rows, resident, widths[0]) + 1e-9


@given(launches())
def test_no_single_width_does_as_well_with_fewer_tiles(launch):
    n, rows, resident, widths = launch
    columns = best(*launch)
    found = busiest(columns, rows, resident, widths[0])
    for width in widths:
        one = uniform(n, width)
        if busiest(one, rows, resident, widths[0]) <= found + 1e-9:
            assert columns.count <= one.count


@pytest.mark.parametrize("resident", RESIDENT)
def test_no_cut_into_two_widths_is_better_by_more_than_a_fiftieth(resident):
    draw = random.Random(resident)
    for _ in range(30):
        widths = draw.choice(WIDTHS)
        n, rows = 8 * draw.randint(1, 2000), draw.randint(1, 40)
        found = busiest(best(n, rows, resident, widths), rows, resident, widths[0])
        least = min(busiest(cut, rows, resident, widths[0]) for cut in every_cut(n, widths))
        assert found <= 1.02 * least, (n, rows, widths)


def test_full_waves_of_the_widest_tiles_are_left_as_they_are():
    assert best(96 * 33, rows=4, resident=66, widths=(96, 88, 80, 72, 64)) == uniform(96 * 33, 96)


def test_two_widths_even_out_a_last_wave_that_one_width_would_leave_nearly_empty():
    """34 columns of 96 in 4 rows are 4 tiles more than two waves of 66, where 49 fill three."""
    widths, n = (96, 88, 80, 72, 64), 96 * 34
    columns = best(n, rows=4, resident=66, widths=widths)
    assert columns == Cut(16, 72, 33, 64)
    assert busiest(uniform(n, 96), 4, 66, 96) == 3
    assert busiest(columns, 4, 66, 96) < 2.2


def test_less_than_a_wave_is_cut_into_the_narrowest_tiles_that_still_run_at_once():
    widths = (96, 88, 80, 72, 64)
    assert best(64 * 60, rows=1, resident=66, widths=widths) == uniform(64 * 60, 64)
    assert best(72 * 66, rows=1, resident=66, widths=widths) == uniform(72 * 66, 72)


@pytest.mark.parametrize("n", [8, 128, 136, 4864])
def test_a_kernel_of_one_width_has_columns_of_it(n):
    assert best(n, rows=5, resident=66, widths=(128,)) == uniform(n, 128)


def test_a_device_with_room_for_one_cluster_is_no_error():
    columns = best(1000, rows=3, resident=1, widths=(96, 64))
    assert columns.wide * columns.wide_width + columns.narrow * columns.narrow_width >= 1000
