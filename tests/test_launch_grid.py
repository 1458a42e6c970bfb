"""The grid, and how many clusters of tiles are computed whole, as the kernels are told."""

from __future__ import annotations

import math

import pytest
from compiled import GATED, name_of
from device_arrays import device_poisoned, on_device
from problems import weight

import cuswiglu
from cuswiglu.driver import DriverError

BY_KERNEL = pytest.mark.parametrize("kernel", GATED, ids=name_of)
MULTIPROCESSORS = 132
SPLITTING = [kernel for kernel in GATED if kernel.splits]


def launch(gpu, kernel, m, n):
    """The launch of a product of (m, 8) and (8, n)."""
    gate, up = (on_device(weight(8, n, "k")) for _ in range(2))
    cuswiglu.swiglu(device_poisoned(m, 8), gate, up, variant=kernel.name)
    return gpu.driver.launches[-1]


def clusters(kernel, m, n):
    return math.ceil(m / (kernel.block_m * kernel.cluster_m)) * math.ceil(
        n / (kernel.block_n * kernel.cluster_n)
    )


def of_clusters(kernel, count):
    """(m, n) of a result of so many clusters, one column of them."""
    return count * kernel.block_m * kernel.cluster_m, 8


@BY_KERNEL
@pytest.mark.parametrize(("m", "n"), [(1, 8), (300, 200), (20000, 264)])
def test_the_grid_has_a_cluster_for_each_number_up_to_what_is_resident(gpu, kernel, m, n):
    """Every cluster of tiles has a number, or two numbers where it is computed in halves."""
    found = launch(gpu, kernel, m, n)
    count = clusters(kernel, m, n)
    numbers = found.named["whole"] + 2 * (count - found.named["whole"])
    width = min(numbers, MULTIPROCESSORS // kernel.cluster_size)
    assert found.grid == (kernel.cluster_m, kernel.cluster_n * width, 1)


@BY_KERNEL
def test_a_full_last_wave_is_computed_whole(gpu, kernel):
    resident = MULTIPROCESSORS // kernel.cluster_size
    found = launch(gpu, kernel, *of_clusters(kernel, 2 * resident))
    assert found.named["whole"] == 2 * resident
    assert found.grid == (kernel.cluster_m, kernel.cluster_n * resident, 1)


@pytest.mark.parametrize("kernel", SPLITTING, ids=name_of)
def test_a_last_wave_of_at_most_half_is_computed_in_halves(gpu, kernel):
    resident = MULTIPROCESSORS // kernel.cluster_size
    for extra in (1, resident // 2):
        found = launch(gpu, kernel, *of_clusters(kernel, resident + extra))
        assert found.named["whole"] == resident
        assert found.grid == (kernel.cluster_m, kernel.cluster_n * resident, 1)


@pytest.mark.parametrize("kernel", SPLITTING, ids=name_of)
def test_a_last_wave_of_more_than_half_is_computed_whole(gpu, kernel):
    resident = MULTIPROCESSORS // kernel.cluster_size
    for extra in (resident // 2 + 1, resident - 1):
        found = launch(gpu, kernel, *of_clusters(kernel, resident + extra))
        assert found.named["whole"] == resident + extra


@pytest.mark.parametrize("kernel", SPLITTING, ids=name_of)
def test_a_problem_of_less_than_half_a_wave_is_all_halves(gpu, kernel):
    found = launch(gpu, kernel, *of_clusters(kernel, 3))
    assert found.named["whole"] == 0
    assert found.grid == (kernel.cluster_m, kernel.cluster_n * 6, 1)


@pytest.mark.parametrize("kernel", [kernel for kernel in GATED if not kernel.splits], ids=name_of)
def test_a_kernel_that_cannot_halve_its_tiles_is_told_to_compute_all_whole(gpu, kernel):
    for count in (3, MULTIPROCESSORS // kernel.cluster_size + 1):
        assert launch(gpu, kernel, *of_clusters(kernel, count)).named["whole"] == count


def test_a_part_of_a_gpu_on_which_no_cluster_fits_is_an_error_that_says_so(gpu):
    """As a MIG slice, or a share of MPS."""
    gpu.driver.multiprocessors = 1
    kernel = next(kernel for kernel in GATED if kernel.cluster_size > 1)
    with pytest.raises(DriverError, match=kernel.name):
        launch(gpu, kernel, 300, 200)


def test_a_gpu_with_fewer_multiprocessors_gets_a_smaller_grid(gpu):
    gpu.driver.multiprocessors = 78
    kernel = next(kernel for kernel in GATED if kernel.cluster_size == 1)
    assert launch(gpu, kernel, *of_clusters(kernel, 200)).grid == (1, 78, 1)
