"""The cost model: what an estimate is made of, and how it moves with the problem."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuswiglu.kernels import tile, tile_columns
from cuswiglu.kernels.estimate import LOAD_RATE, Rates
from cuswiglu.kernels.tile import LAUNCH_US
from cuswiglu.problem import Layout
from cuswiglu.runtime import driver
from tests.helpers.compiled import GATED, PLAIN, made_up, name_of
from tests.helpers.problems import plain_problem, problem

SMS = 132
BY_KERNEL = pytest.mark.parametrize("kernel", [*GATED, *PLAIN], ids=name_of)
PROBLEM = problem()
WIDTHS = (96, 88, 80, 72, 64)
NARROWING = made_up(block_m=128, block_n=96, cluster_m=2, widths=(("k", WIDTHS), ("n", (96,))))
RESIDENT = SMS // 2  # clusters of two


def of_rows(count, kernel=NARROWING):
    """M of a result of so many rows of clusters."""
    return count * kernel.block_m * kernel.cluster_m


def us(kernel, m, n, k, measured=()):
    of_kind = PROBLEM if kernel.gated else plain_problem()
    sized = dataclasses.replace(of_kind, m=m, n=n, k=k)
    return kernel.estimate(sized, SMS, dict(measured)).us


# Waves


@pytest.mark.parametrize(
    ("rows", "count"),
    [(1, 1), (RESIDENT, 1), (RESIDENT + 1, 2), (2 * RESIDENT, 2), (2 * RESIDENT + 1, 3)],
)
def test_waves_of_one_width_are_tiles_of_the_busiest_cluster(rows, count):
    assert NARROWING.rated_waves(of_rows(rows), 96, "n", SMS) == count


def test_narrower_tiles_count_less_than_a_wave():
    """Every cluster has a tile, and each is of 64 columns."""
    found = NARROWING.rated_waves(of_rows(1), 64 * RESIDENT, "k", SMS)
    assert found == tile_columns.busiest(tile_columns.uniform(64 * RESIDENT, 64), 1, RESIDENT, 96)
    assert 64 / 96 < found < 1


def test_waves_are_those_of_the_columns_that_a_launch_has():
    m, n = of_rows(4), 96 * 34
    cut = NARROWING.columns(m, n, "k", RESIDENT)
    assert NARROWING.rated_waves(m, n, "k", SMS) == tile_columns.busiest(cut, 4, RESIDENT, 96)


def test_a_layout_with_more_widths_takes_no_more_waves():
    m, n = of_rows(4), 96 * 34
    assert NARROWING.rated_waves(m, n, "k", SMS) < NARROWING.rated_waves(m, n, "n", SMS) == 3


#: The search among columns is not complete, but nearly so.
NEARLY = 1.02


@given(st.sampled_from([*GATED, *PLAIN]), st.integers(1, 40_000), st.integers(1, 40_000))
def test_more_rows_take_no_fewer_waves(kernel, m, more):
    for major in kernel.layouts:
        fewer = kernel.rated_waves(m, 4096, major, SMS)
        assert fewer <= NEARLY * kernel.rated_waves(m + more, 4096, major, SMS)


@given(st.sampled_from([*GATED, *PLAIN]), st.integers(1, 20_000), st.integers(8, 200))
def test_fewer_multiprocessors_take_no_fewer_waves(kernel, m, count):
    for major in kernel.layouts:
        more = kernel.rated_waves(m, 4096, major, count)
        assert kernel.rated_waves(m, 4096, major, count + 1) <= NEARLY * more


def test_a_device_smaller_than_a_cluster_is_no_error():
    assert made_up(cluster_m=4).rated_waves(5000, 4096, "k", 2) > 0


# Estimates


@BY_KERNEL
def test_each_wave_costs_more_and_a_part_of_one_costs_no_more_than_a_wave(kernel):
    resident = SMS // kernel.cluster_m
    one, part, two = (
        us(kernel, of_rows(rows, kernel), kernel.block_n, 4096)
        for rows in (resident, resident + 1, 2 * resident)
    )
    assert one < part <= two


@BY_KERNEL
def test_more_of_k_never_costs_less(kernel):
    times = [us(kernel, 1000, 1000, k) for k in range(8, 2000, 8)]
    assert times == sorted(times)
    assert times[0] < times[-1]


@BY_KERNEL
def test_a_part_of_a_step_of_k_costs_a_whole_one(kernel):
    step = kernel.block_k
    # So many rows that loading the weights counts for nothing.
    times = [us(kernel, 100_000, 1000, k) for k in (step + 8, 2 * step, 2 * step + 8)]
    assert times[0] == pytest.approx(times[1], rel=1e-6)
    assert times[2] > 1.1 * times[1]


def test_a_measured_rate_is_used_where_there_is_one():
    rates = {NARROWING.name: Rates(step_us=0.5, tile_us=2.0)}
    m, n, k = of_rows(1), 96 * 3 * RESIDENT, 10 * NARROWING.block_k
    work = NARROWING.work(m, n, k, "k", SMS)
    expected = LAUNCH_US + work.microseconds(3 * (10 * 0.5 + 2.0))
    assert us(NARROWING, m, n, k, rates) == pytest.approx(expected)


@BY_KERNEL
def test_no_kernel_is_faster_than_the_weights_can_be_loaded(kernel):
    n, k = 18944, 3584
    weights = 2 * n * k * (2 if kernel.gated else 1)  # bytes
    assert us(kernel, 1, n, k) > weights / (SMS * LOAD_RATE)


def test_the_rates_of_another_variant_change_nothing():
    others = {"another": Rates(step_us=0.5, tile_us=2.0)}
    assert us(NARROWING, 1000, 96, 512, others) == us(NARROWING, 1000, 96, 512)


def test_an_estimate_says_what_it_is_of():
    found = NARROWING.estimate(dataclasses.replace(PROBLEM, m=300, n=200), SMS, {})
    cut = NARROWING.columns(300, 200, "k", RESIDENT)
    assert found.kernel == NARROWING
    assert found.tiles == 2 * cut.count * NARROWING.cluster_m
    assert found.waves == NARROWING.rated_waves(300, 200, "k", SMS)


def test_an_estimate_is_of_the_layout_of_the_weights():
    m, n = of_rows(4), 96 * 34
    for major in ("k", "n"):
        asked = dataclasses.replace(PROBLEM, m=m, n=n, layout=Layout(major))
        assert NARROWING.estimate(asked, SMS, {}).waves == NARROWING.rated_waves(m, n, major, SMS)


def test_an_estimate_asks_nothing_of_a_gpu_and_is_the_same_each_time(monkeypatch):
    def asked():
        raise AssertionError("the cost model is pure")

    monkeypatch.setattr(driver, "bindings", asked)
    assert NARROWING.estimate(PROBLEM, SMS, {}) == NARROWING.estimate(PROBLEM, SMS, {})


# Evenness


def evenness(rows, n, major="n"):
    asked = dataclasses.replace(PROBLEM, m=of_rows(rows), n=n, layout=Layout(major))
    return NARROWING.estimate(asked, SMS, {}).evenness


@pytest.mark.parametrize(("rows", "n"), [(1, 96 * RESIDENT), (2, 96 * RESIDENT), (6, 96 * 55)])
def test_full_waves_are_even(rows, n):
    assert evenness(rows, n) == pytest.approx(1)


def test_clusters_without_work_are_uneven():
    assert evenness(1, 96) == pytest.approx(1 / RESIDENT)
    assert evenness(1, 96 * (RESIDENT + 1)) == pytest.approx((RESIDENT + 1) / (2 * RESIDENT))


def test_columns_of_a_tile_beyond_n_are_uneven():
    assert evenness(RESIDENT, 48) == pytest.approx(1 / 2)


def test_a_second_width_evens_waves_out():
    assert evenness(4, 96 * 34, "k") > evenness(4, 96 * 34, "n")


@given(st.sampled_from([*GATED, *PLAIN]), st.integers(1, 20_000), st.integers(1, 2500))
def test_no_waves_are_more_than_full(kernel, m, eighths):
    for major in kernel.layouts:
        asked = dataclasses.replace(PROBLEM, m=m, n=8 * eighths, layout=Layout(major))
        assert 0 < kernel.estimate(asked, SMS, {}).evenness <= 1 + 1e-9


# Rates of a variant that was never measured


@BY_KERNEL
def test_no_variant_is_thought_faster_than_the_tensor_cores(kernel):
    products = 2 if kernel.gated else 1
    flops = 2 * products * kernel.block_m * kernel.block_n * kernel.block_k
    peak = tile.FLOPS_PER_CYCLE * tile.CYCLES_PER_US
    assert kernel.analytic_rates().step_us >= flops / peak * (1 - 1e-9)


def test_gate_and_up_take_more_than_one_weight_of_as_many_columns():
    plain = dataclasses.replace(NARROWING, family="plain")
    assert plain.analytic_rates().step_us < NARROWING.analytic_rates().step_us


def test_a_cooperative_kernel_does_not_hide_its_epilogue():
    cooperative = dataclasses.replace(NARROWING, schedule="cooperative")
    assert NARROWING.analytic_rates().tile_us < cooperative.analytic_rates().tile_us
