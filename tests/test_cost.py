"""The cost model: what an estimate is made of, and how it moves with the problem."""

from __future__ import annotations

import dataclasses

import pytest
from compiled import GATED, PLAIN, made_up, name_of
from hypothesis import given
from hypothesis import strategies as st
from problems import plain_problem, problem

from cuswiglu import cost, driver
from cuswiglu.cost import HALF_TILE, LAUNCH_US, Rates, analytic_rates, estimate, waves

SMS = 132
BY_KERNEL = pytest.mark.parametrize("kernel", [*GATED, *PLAIN], ids=name_of)
PROBLEM = problem()
SPLITTING = made_up(block_m=128, block_n=96, cluster_m=2, cluster_n=1, splits=True)
WHOLE = dataclasses.replace(SPLITTING, splits=False)
RESIDENT = SMS // 2  # clusters of two


def of_clusters(count, kernel=SPLITTING):
    """M of a result of so many clusters, one column of them."""
    return count * kernel.block_m * kernel.cluster_m


def us(kernel, m, n, k, measured=()):
    of_kind = PROBLEM if kernel.gated else plain_problem()
    sized = dataclasses.replace(of_kind, m=m, n=n, k=k)
    return estimate(kernel, sized, SMS, dict(measured)).us


# Waves


@pytest.mark.parametrize(
    ("clusters", "halved", "whole"),
    [
        (1, HALF_TILE, 1),
        (RESIDENT // 2, HALF_TILE, 1),
        (RESIDENT // 2 + 1, 1, 1),
        (RESIDENT, 1, 1),
        (RESIDENT + 1, 1 + HALF_TILE, 2),
        (2 * RESIDENT, 2, 2),
        (2 * RESIDENT + 1, 2 + HALF_TILE, 3),
    ],
)
def test_waves_are_tiles_of_the_busiest_cta_and_a_half_counts_less(clusters, halved, whole):
    assert waves(SPLITTING, of_clusters(clusters), 96, SMS) == halved
    assert waves(WHOLE, of_clusters(clusters), 96, SMS) == whole


def test_a_half_tile_takes_more_than_half_the_time_of_a_whole_one_and_less_than_all():
    assert 0.5 < HALF_TILE < 1


@given(st.sampled_from([*GATED, *PLAIN]), st.integers(1, 40_000), st.integers(1, 40_000))
def test_more_rows_never_take_fewer_waves(kernel, m, more):
    assert waves(kernel, m, 4096, SMS) <= waves(kernel, m + more, 4096, SMS)


@given(st.sampled_from([*GATED, *PLAIN]), st.integers(1, 20_000), st.integers(8, 200))
def test_fewer_multiprocessors_never_take_fewer_waves(kernel, m, count):
    assert waves(kernel, m, 4096, count + 1) <= waves(kernel, m, 4096, count)


def test_a_device_smaller_than_a_cluster_is_no_error():
    assert waves(made_up(cluster_m=4, cluster_n=1), 5000, 4096, 2) > 0


# Estimates


@BY_KERNEL
def test_each_wave_costs_more_and_halves_cost_less_than_a_wave(kernel):
    resident = SMS // kernel.cluster_size
    one, two = (us(kernel, of_clusters(c, kernel), 8, 4096) for c in (resident, 2 * resident))
    halves = us(kernel, of_clusters(resident + 1, kernel), 8, 4096)
    assert one < halves <= two
    assert (halves < two) == kernel.splits


@BY_KERNEL
def test_more_of_k_never_costs_less(kernel):
    times = [us(kernel, 1000, 1000, k) for k in range(8, 2000, 8)]
    assert times == sorted(times)
    assert times[0] < times[-1]


@BY_KERNEL
def test_a_part_of_a_step_of_k_costs_a_whole_one(kernel):
    step = kernel.block_k
    times = [us(kernel, 1000, 1000, k) for k in (step + 8, 2 * step, 2 * step + 8)]
    assert times[0] == times[1] < times[2]


def test_a_measured_rate_is_used_where_there_is_one():
    rates = {SPLITTING.name: Rates(step_us=0.5, tile_us=2.0)}
    m, k = of_clusters(3 * RESIDENT), 10 * SPLITTING.block_k
    assert us(SPLITTING, m, 96, k, rates) == pytest.approx(LAUNCH_US + 3 * (10 * 0.5 + 2.0))


def test_the_rates_of_another_instance_change_nothing():
    others = {"another": Rates(step_us=0.5, tile_us=2.0)}
    assert us(SPLITTING, 1000, 96, 512, others) == us(SPLITTING, 1000, 96, 512)


def test_an_estimate_says_what_it_is_of():
    found = estimate(SPLITTING, dataclasses.replace(PROBLEM, m=300, n=200), SMS, {})
    assert (found.kernel, found.clusters, found.resident) == (SPLITTING, 2 * 3, RESIDENT)
    assert found.waves == HALF_TILE


def test_an_estimate_asks_nothing_of_a_gpu_and_is_the_same_each_time(monkeypatch):
    def asked():
        raise AssertionError("the cost model is pure")

    monkeypatch.setattr(driver, "bindings", asked)
    assert estimate(SPLITTING, PROBLEM, SMS, {}) == estimate(SPLITTING, PROBLEM, SMS, {})


# Rates of an instance that was never measured


@BY_KERNEL
def test_no_instance_is_thought_faster_than_the_tensor_cores(kernel):
    products = 2 if kernel.gated else 1
    flops = 2 * products * kernel.block_m * kernel.block_n * kernel.block_k
    peak = cost.FLOPS_PER_CYCLE * cost.CYCLES_PER_US
    assert analytic_rates(kernel).step_us >= flops / peak * (1 - 1e-9)


def test_gate_and_up_take_more_than_one_weight_of_as_many_columns():
    plain = dataclasses.replace(SPLITTING, family="plain")
    assert analytic_rates(plain).step_us < analytic_rates(SPLITTING).step_us


def test_a_cooperative_kernel_does_not_hide_its_epilogue():
    cooperative = dataclasses.replace(SPLITTING, schedule="cooperative")
    assert analytic_rates(SPLITTING).tile_us < analytic_rates(cooperative).tile_us
