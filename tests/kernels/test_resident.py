"""How the resident kernel cuts a problem: columns by groups, rows by CTAs, stages of X."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuswiglu.kernels.resident import CONSUMERS
from cuswiglu.kernels.split import Split
from tests.helpers.host_resident import HostResident
from tests.helpers.resident_kernels import KERNEL, asked_of

SMS = 132
SM_BYTES = 227 * 1024
# What hypothesis draws: sizes, and how many CTAs run at once.
ROWS = st.integers(1, 200_000)
EIGHTS = st.integers(1, 400).map(lambda count: 8 * count)
SHORT = st.integers(1, KERNEL.most_k // 8).map(lambda count: 8 * count)
AT_ONCE = st.integers(1, SMS)


def launch_of(asked, at_once=SMS):
    return KERNEL.launch_shape(asked, 0, None, lambda cluster, shared_bytes: at_once)


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    return HostResident(tmp_path_factory.mktemp("resident_scheduler")).share


# What it can compute


def test_k_of_up_to_256_finds_room():
    assert KERNEL.most_k == 256
    assert KERNEL.obstacle(asked_of(600, 512, 256)) is None


def test_a_longer_k_is_refused_with_the_limit_named():
    said = KERNEL.obstacle(asked_of(600, 512, 264))
    assert said == f"K must be at most 256 for {KERNEL.name}, got 264"


def test_it_goes_without_a_split():
    assert KERNEL.launchable(asked_of(64, 64, 64), None)
    assert not KERNEL.launchable(asked_of(64, 64, 64), Split(8, 1, 1))


@pytest.mark.parametrize(
    ("m", "k", "settles"),
    [(2048, 192, True), (2047, 192, False), (2048, 200, False), (2**18, 256, True)],
)
def test_it_settles_selection_where_k_is_short_and_rows_are_many(m, k, settles):
    assert KERNEL.settles(asked_of(m, 512, k)) == settles


# The cut


@given(ROWS, EIGHTS, SHORT, AT_ONCE)
def test_weights_and_stages_find_room_in_an_sm(m, n, k, at_once):
    shape = launch_of(asked_of(m, n, k), at_once)
    cut = KERNEL.cut(asked_of(m, n, k), at_once)
    steps = -(-k // 64)
    weights = 2 * 64 * 64 * 2 * cut.slices * steps
    stages = 64 * 64 * 2 * cut.stages * steps
    assert shape.shared_bytes == KERNEL.fixed_bytes + weights + stages <= SM_BYTES
    assert cut.slices <= KERNEL.max_slices
    assert 2 <= cut.stages <= KERNEL.max_stages


@given(ROWS, EIGHTS, SHORT, AT_ONCE)
def test_a_consumer_of_a_row_was_one_of_the_row_whose_stage_it_takes(m, n, k, at_once):
    """Tiles are taken by turns, row by row: of a row that it waits for, the stage's last must have
    come, and only rows with a tile of its own are known to have."""
    cut = KERNEL.cut(asked_of(m, n, k), at_once)
    columns = -(-n // 64)
    for slices in {cut.slices, columns // cut.groups}:
        for row in range(8):
            takers = {tile % CONSUMERS for tile in range(row * slices, (row + 1) * slices)}
            later = row + cut.stages
            then = {tile % CONSUMERS for tile in range(later * slices, (later + 1) * slices)}
            assert then == takers


@given(ROWS, EIGHTS, SHORT, AT_ONCE)
def test_no_other_cut_that_finds_room_gives_the_busiest_sm_fewer_tiles(m, n, k, at_once):
    cut = KERNEL.cut(asked_of(m, n, k), at_once)
    rows, columns, steps = -(-m // 64), -(-n // 64), -(-k // 64)
    for groups in range(1, columns + 1):
        most, fewest = -(-columns // groups), columns // groups
        unit = max(2, *(1 if s >= 4 else 4 // math.gcd(s, 4) for s in (most, fewest)))
        room = SM_BYTES - KERNEL.fixed_bytes - most * steps * KERNEL.weight_bytes
        if most > KERNEL.max_slices or room < unit * steps * KERNEL.x_bytes:
            continue
        workers = max(1, min(rows, at_once // groups))
        waves = -(-groups * workers // at_once)
        assert cut.tiles <= waves * -(-rows // workers) * most


def test_the_columns_of_alphafolds_512_are_cut_so_that_all_sms_have_as_much_to_do():
    cut = KERNEL.cut(asked_of(2**20, 512, 128), SMS)
    assert cut.groups * cut.workers == SMS
    assert cut.tiles * SMS * 64 * 64 < 1.002 * 2**20 * 512


# The scheduler


@pytest.mark.parametrize("at_once", [1, 7, 66, 132])
def test_ctas_share_out_every_tile_exactly_once(share, at_once):
    draw = np.random.default_rng(at_once)
    for _ in range(30):
        m, n, k = (int(draw.integers(1, most)) for most in (6000, 2000, 33))
        asked = asked_of(m, 8 * -(-n // 8), 8 * k)
        cut, grid = KERNEL.cut(asked, at_once), launch_of(asked, at_once).clusters
        visits = np.zeros((-(-asked.m // 64), -(-asked.n // 64)), int)
        for cta in range(grid):
            rows, columns = share(asked.m, asked.n, cut.groups, cta, grid)
            assert 1 <= len(columns) <= cut.slices
            for row in rows:
                visits[row, columns.start : columns.stop] += 1
        assert (visits == 1).all(), asked


def test_ctas_of_one_row_of_tiles_follow_each_other(share):
    found = [share(6400, 512, 4, cta, 132) for cta in range(8)]
    assert [rows.start for rows, _ in found] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [columns.start for _, columns in found] == [0, 2, 4, 6] * 2


# The launch


@given(ROWS, EIGHTS, SHORT, AT_ONCE)
def test_integers_are_sizes_and_the_cut_in_the_kernels_order(m, n, k, at_once):
    asked = asked_of(m, n, k)
    cut, shape = KERNEL.cut(asked, at_once), launch_of(asked, at_once)
    assert list(shape.integers.items()) == [
        *(("m", m), ("n", n), ("k", k), ("groups", cut.groups), ("stages", cut.stages))
    ]
    assert shape.clusters == cut.groups * cut.workers


def test_the_integers_of_a_launch_are_those_that_entries_take():
    taken = [name for name, kind in KERNEL.arguments if kind == "int32"]
    given_by_the_caller = taken[taken.index("weights_ahead") :]
    assert [*launch_of(asked_of(64, 64, 64)).integers, *given_by_the_caller] == taken


def test_boxes_are_a_tile_of_x_and_of_either_weight_and_a_warps_rows_of_the_result():
    along_k, along_n = (launch_of(asked_of(64, 64, 64, major)).boxes for major in "kn")
    assert along_k == along_n
    assert along_k == {
        **dict.fromkeys(("x", "w_first", "w_second"), (64, 64, 128)),
        "out": (64, 16, 128),
    }


# The estimate


def test_an_estimate_grows_with_rows_columns_and_steps_of_k():
    sizes = [(2**16, 512, 64), (2**18, 512, 64), (2**18, 1024, 64), (2**18, 1024, 128)]
    times = [KERNEL.estimate(asked_of(*size), SMS, {}).us for size in sizes]
    assert times == sorted(times)


def test_an_estimate_is_near_what_an_h200_took():
    for size, measured in {(2**20, 512, 128): 475.7, (2**18, 256, 64): 53.8}.items():
        found = KERNEL.estimate(asked_of(*size), SMS, {})
        assert found.us == pytest.approx(measured, rel=0.15)


def test_an_estimate_tells_how_full_the_waves_are():
    found = KERNEL.estimate(asked_of(64 * 66, 128, 64), SMS, {})
    assert (found.tiles, found.waves, found.evenness) == (132, 1, 1.0)
    half = KERNEL.estimate(asked_of(64 * 33, 128, 64), SMS, {})
    assert half.evenness == 0.5
