"""Tuning, but for the measuring: shapes, the fastest, and rates fitted to times."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cuswiglu import autotune
from cuswiglu.autotune import PORTABLE, Tried, best, fit_rates, mlp_shapes
from cuswiglu.kernels.estimate import Rates
from cuswiglu.kernels.tile import LAUNCH_US, RASTERS
from cuswiglu.selection import tuned
from cuswiglu.selection.tuned import Shape
from tests.helpers.compiled import GATED, PLAIN, SWAPPED, entry_of, made_up, pretend_compiled
from tests.helpers.device_arrays import device_poisoned
from tests.helpers.problems import plain_problem, problem

SMS = 132
SHAPES = [
    *(Shape(m, n, k) for m in (512, 1024, 3000) for n, k in [(4864, 896), (18944, 3584)]),
    *(Shape(m, k, n, gated=False) for m in (512, 2048) for n, k in [(4864, 896), (9000, 2048)]),
]


def synthetic(rates, rasters=(16, 4)):
    """Times that the cost model gives for these rates; the second raster is always slower."""
    measured = {}
    for shape in SHAPES:
        times = {PORTABLE: 999.0}
        for kernel in (*GATED, *PLAIN):
            if kernel.gated == shape.gated and kernel.name in rates:
                us = time_of(kernel, shape, rates[kernel.name])
                times |= {Tried(kernel.name, r): us * (1 + i) for i, r in enumerate(rasters)}
        measured[shape] = times
    return measured


def time_of(kernel, shape, rates):
    waves = kernel.rated_waves(shape.m, shape.n, shape.layout, SMS)
    steps = -(-shape.k // kernel.block_k)
    work = kernel.work(shape.m, shape.n, shape.k, shape.layout, SMS)
    return LAUNCH_US + work.microseconds(waves * (steps * rates.step_us + rates.tile_us))


# Shapes


def test_an_mlp_is_a_product_of_gate_and_up_and_a_down_projection_for_each_count_of_tokens():
    assert list(mlp_shapes(896, 4864, [512, 64], "n")) == [
        Shape(512, 4864, 896, "n", gated=True),
        Shape(512, 896, 4864, "n", gated=False),
        Shape(64, 4864, 896, "n", gated=True),
        Shape(64, 896, 4864, "n", gated=False),
    ]


def test_weights_lie_along_k_unless_said_otherwise():
    assert {shape.layout for shape in mlp_shapes(8, 16, [1])} == {"k"}


# The fastest


def test_the_fastest_is_kept_with_its_raster_and_its_time():
    times = {Tried("a", 16): 20.0, Tried("a", 4): 10.123, Tried("b", 16): 15.0, PORTABLE: 30.0}
    key, entry = best(Shape(512, 4864, 896), times)
    assert key == tuned.Key(True, 512, 4864, 896, "k")
    assert entry == tuned.Entry("a", 4, 10.12)


@pytest.mark.parametrize(
    ("m", "rows"), [(1, 8), (9, 16), (17, 32), (33, 64), (64, 64), (65, 72), (500, 504)]
)
def test_the_key_is_the_one_that_problems_of_that_shape_are_looked_up_by(m, rows):
    for of_kind, gated in ((problem, True), (plain_problem, False)):
        key, _ = best(Shape(m, 96, 128, "n", gated=gated), {Tried("a", 1): 1.0})
        assert key.m == rows
        assert key == tuned.Key.of(of_kind(m=m, n=96, k=128, major="n"))


def test_cublas_may_be_the_fastest_and_its_entry_can_be_written():
    _, entry = best(Shape(512, 96, 128), {Tried("a", 16): 20.0, PORTABLE: 10.0})
    assert entry.variant == "cublas"
    table = tuned.Table("GPU", "hash", {tuned.Key(True, 512, 96, 128, "k"): entry}, {})
    assert tuned.parse(tuned.serialise(table)) == table


# Rates


def test_known_rates_are_recovered_from_the_times_they_give():
    rng = np.random.default_rng(0)
    rates = {
        kernel.name: Rates(*rng.uniform((0.05, 0.5), (0.5, 3.0))) for kernel in (*GATED, *PLAIN)
    }
    found = fit_rates(synthetic(rates), SMS)
    assert set(found) == set(rates)
    for name, fitted in found.items():
        assert fitted.step_us == pytest.approx(rates[name].step_us, rel=1e-3)
        assert fitted.tile_us == pytest.approx(rates[name].tile_us, rel=1e-3, abs=1e-3)


def test_fitted_rates_give_the_estimates_of_what_was_measured():
    kernel = GATED[0]
    measured = synthetic({kernel.name: Rates(0.2, 1.5)})
    fitted = fit_rates(measured, SMS)[kernel.name]
    for shape in SHAPES[:6]:
        assert time_of(kernel, shape, fitted) == pytest.approx(
            measured[shape][Tried(kernel.name, 16)], rel=1e-3
        )


def test_noise_moves_rates_a_little():
    kernel = GATED[0]
    rng = np.random.default_rng(0)
    noisy = {
        shape: {key: us * rng.normal(1, 0.01) for key, us in times.items()}
        for shape, times in synthetic({kernel.name: Rates(0.2, 1.5)}).items()
    }
    fitted = fit_rates(noisy, SMS)[kernel.name]
    assert fitted.step_us == pytest.approx(0.2, rel=0.1)


def test_a_tile_that_seems_to_take_less_than_no_time_takes_none():
    kernel = GATED[0]
    fitted = fit_rates(synthetic({kernel.name: Rates(0.2, -0.3)}), SMS)[kernel.name]
    assert fitted.tile_us == 0
    assert 0 < fitted.step_us < 0.2


def test_only_what_was_measured_has_rates():
    assert set(fit_rates(synthetic({GATED[0].name: Rates(0.2, 1.5)}), SMS)) == {GATED[0].name}
    assert fit_rates({}, SMS) == {}
    assert fit_rates({SHAPES[0]: {PORTABLE: 5.0, Tried("unknown", 16): 4.0}}, SMS) == {}


def test_one_shape_is_enough_to_estimate_that_shape():
    kernel = GATED[0]
    shape = SHAPES[0]
    times = {shape: synthetic({kernel.name: Rates(0.2, 1.5)})[shape]}
    fitted = fit_rates(times, SMS)[kernel.name]
    assert time_of(kernel, shape, fitted) == pytest.approx(
        times[shape][Tried(kernel.name, 16)], rel=1e-3
    )


def test_times_as_short_as_a_launch_are_left_out_of_the_fit():
    """They tell of the launch alone, and could make the rates negative."""
    shape = Shape(64, 96, 64)
    assert fit_rates({shape: {Tried(GATED[0].name, 16): LAUNCH_US - 0.5}}, SMS) == {}


# What is measured


@pytest.fixture
def measured(gpu, monkeypatch):
    """tuning.measure on the fake GPU; gives what it measured, called once each.

    measured(shape, ...) is {name of a contender: what it launched}.
    """

    def random(rows, columns, scale):
        return device_poisoned(rows, columns)

    def microseconds(contenders, sets, **options):
        launched = {}
        for name, call in contenders.items():
            gpu.driver.launches.clear()
            gpu.portable.clear()
            for number in range(sets):
                call(number)
            launched[name] = list(gpu.driver.launches) or list(gpu.portable)
        monkeypatch.setattr(autotune, "launched", launched, raising=False)
        return {name: float(len(name)) for name in contenders}

    monkeypatch.setattr(autotune, "_random", random)
    monkeypatch.setattr(autotune, "WORKSPACE_BYTES", (64,))
    monkeypatch.setattr(autotune.timing, "buffer_sets", lambda set_bytes: 3)
    monkeypatch.setattr(autotune.timing, "microseconds", microseconds)

    def measure(shape, **options):
        with gpu.cupy.cuda.Device(0):
            times = autotune.measure(shape, **options)
        return times, autotune.launched

    return measure


@pytest.mark.parametrize("gated", [True, False])
def test_every_contender_launches_its_own_kernel_with_its_raster_on_every_set(measured, gated):
    shape = Shape(4000, 3072, 512, gated=gated)
    times, launched = measured(shape, everything=True)
    kernels = {kernel.name: kernel for kernel in (*GATED, *PLAIN, *SWAPPED)}
    weights = set()
    assert PORTABLE in times
    for tried in times:
        if tried == PORTABLE:
            assert len(launched[str(tried)]) == 3
            continue
        name, raster = tried.variant, tried.raster_rows
        assert tried.split is None
        assert kernels[name].gated == gated
        launches = launched[str(tried)]
        assert {launch.entry for launch in launches} == {entry_of(kernels[name])}
        assert {launch.named["raster_rows"] for launch in launches} == {raster}
        assert {launch.sizes for launch in launches} == {(4000, 3072, 512)}
        assert {launch.named["weights_ahead"] for launch in launches} == {1}  # as in a GatedMLP
        weights.add(tuple(launch.addresses[1] for launch in launches))
    (addresses,) = weights
    assert len(set(addresses)) == 3  # none finds its weights in the L2


def test_every_kernel_that_can_is_measured_only_where_asked_for(measured, monkeypatch):
    shape = Shape(4000, 3072, 512)
    slow = dataclasses.replace(made_up(name="slow"), block_m=128, block_n=8)
    pretend_compiled(monkeypatch, made_up(name="fast"), slow)
    assert {tried.variant for tried in measured(shape)[0]} == {"fast", "cublas"}
    everything, _ = measured(shape, everything=True)
    assert {tried.variant for tried in everything} == {"fast", "slow", "cublas"}


def test_one_raster_is_enough_where_all_tiles_run_at_once(measured):
    tiles = {kernel.name for kernel in GATED}
    times, _ = measured(Shape(64, 96, 512), everything=True)
    rasters = {tried.raster_rows for tried in times if tried.variant in tiles}
    assert rasters == {RASTERS[0]}
    times, _ = measured(Shape(8000, 8192, 512), everything=True)
    rasters = {tried.raster_rows for tried in times if tried.variant in tiles}
    assert rasters == set(RASTERS)
