"""The grid, and the columns of tiles, as the kernels are told."""

from __future__ import annotations

import dataclasses

import pytest

import cuswiglu
from cuswiglu.kernels.tile import TileVariant
from cuswiglu.kernels.tile_columns import Cut
from cuswiglu.runtime.driver import DriverError
from tests.helpers.compiled import ENTRIES, GATED, made_up, name_of, pretend_compiled, with_layouts
from tests.helpers.device_arrays import device_poisoned, on_device
from tests.helpers.problems import weight

BY_KERNEL = pytest.mark.parametrize("kernel", GATED, ids=name_of)
BY_ENTRY = pytest.mark.parametrize(("kernel", "major"), ENTRIES)
MULTIPROCESSORS = 132
WIDTHS = (("k", (96, 88, 80, 72, 64)), ("n", (96, 64)))


def launch(gpu, kernel, m, n, major="k"):
    """The launch of a product of (m, 8) and (8, n)."""
    gate, up = (on_device(weight(8, n, major)) for _ in range(2))
    cuswiglu.swiglu(device_poisoned(m, 8), gate, up, variant=kernel.name)
    return gpu.driver.launches[-1]


def told(found):
    """The columns of a launch, as integers."""
    return tuple(found.named[name] for name in ("wide", "wide_width", "narrow_width"))


@pytest.fixture
def narrowing(monkeypatch):
    """A kernel for clusters of two with several widths, alone in the package."""
    like = with_layouts(made_up(name="narrowing", block_m=128, block_n=96, cluster_m=2), "k", "n")
    (kernel,) = pretend_compiled(monkeypatch, dataclasses.replace(like, widths=WIDTHS))
    return kernel


# The grid


@BY_ENTRY
@pytest.mark.parametrize(("m", "n"), [(1, 8), (300, 200), (20000, 264)])
def test_the_grid_has_a_cluster_for_each_tile_up_to_what_is_resident(gpu, kernel, major, m, n):
    found = launch(gpu, kernel, m, n, major)
    resident = MULTIPROCESSORS // kernel.cluster_m
    tiles = kernel.rows(m) * kernel.columns(m, n, major, resident).count
    assert found.grid == (kernel.cluster_m, min(tiles, resident), 1)


def test_a_part_of_a_gpu_on_which_no_cluster_fits_is_an_error_that_says_so(gpu):
    """As a MIG slice, or a share of MPS."""
    gpu.driver.multiprocessors = 1
    kernel = next(kernel for kernel in GATED if kernel.cluster_m > 1)
    with pytest.raises(DriverError, match=kernel.name):
        launch(gpu, kernel, 300, 200)


@BY_KERNEL
def test_a_gpu_with_fewer_multiprocessors_gets_a_smaller_grid(gpu, kernel):
    gpu.driver.multiprocessors = 78
    m = 200 * kernel.block_m * kernel.cluster_m
    assert launch(gpu, kernel, m, 96).grid == (kernel.cluster_m, 78 // kernel.cluster_m, 1)


# Columns


@BY_ENTRY
@pytest.mark.parametrize(("m", "n"), [(300, 200), (1000, 4864), (700, 3264)])
def test_a_kernel_is_told_the_columns_of_the_layout(gpu, kernel, major, m, n):
    columns = kernel.columns(m, n, major, MULTIPROCESSORS // kernel.cluster_m)
    found = launch(gpu, kernel, m, n, major)
    assert told(found) == (columns.wide, columns.wide_width, columns.narrow_width)


def test_a_short_last_wave_is_cut_into_two_widths(gpu, narrowing):
    found = launch(gpu, narrowing, 4 * 256, 96 * 34)
    assert told(found) == (16, 72, 64)
    assert found.grid == (2, 66, 1)


def test_another_layout_has_the_columns_of_its_own_widths(gpu, narrowing):
    found = launch(gpu, narrowing, 4 * 256, 96 * 34, "n")
    assert {found.named["wide_width"], found.named["narrow_width"]} <= {96, 64}


def test_full_waves_of_the_widest_tiles_are_not_cut(gpu, narrowing):
    assert told(launch(gpu, narrowing, 4 * 256, 96 * 33)) == (33, 96, 96)


@pytest.mark.parametrize(("multiprocessors", "width"), [(132, 64), (88, 96)])
def test_columns_are_for_as_many_clusters_as_the_driver_says_are_resident(
    gpu, narrowing, multiprocessors, width
):
    """66 columns of 64 are a wave of 66 clusters; 44 clusters have one of 44 columns of 96."""
    gpu.driver.multiprocessors = multiprocessors
    found = launch(gpu, narrowing, 256, 64 * 66)
    assert told(found) == (64 * 66 // width, width, width)


def test_the_wide_columns_leave_the_rest_to_the_narrow_ones_which_the_kernel_counts(
    gpu, narrowing, monkeypatch
):
    forced = Cut(2, 88, narrow=1, narrow_width=72)
    monkeypatch.setattr(TileVariant, "columns", lambda *arguments: forced)
    found = launch(gpu, narrowing, 300, 240)
    assert told(found) == (2, 88, 72)
    assert found.grid == (2, 2 * 3, 1)
