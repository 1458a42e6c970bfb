"""From a call with CuPy arrays to a launch: descriptors, arguments, grid, stream.

The driver is a recorded fake, and refuses what a driver refuses: see fake_driver.py.
"""

from __future__ import annotations

import pytest

import cuswiglu
from cuswiglu.runtime.driver import DriverError
from tests.helpers.compiled import (
    ENTRIES,
    GATED,
    MAJORS,
    entry_of,
    name_of,
    pretend_compiled,
    with_layouts,
)
from tests.helpers.device_arrays import device_poisoned, on_device
from tests.helpers.fake_driver import Result, cuda
from tests.helpers.problems import weight

M, N, K = 300, 200, 136  # tails in all of them
BY_KERNEL = pytest.mark.parametrize("kernel", GATED, ids=name_of)
BY_ENTRY = pytest.mark.parametrize(("kernel", "major"), ENTRIES)
BY_MAJOR = pytest.mark.parametrize("major", MAJORS)
# Bytes of a swizzle span -> CU_TENSOR_MAP_SWIZZLE_128B, _64B, _32B, _NONE
SWIZZLE = {128: 3, 64: 2, 32: 1, 16: 0}


def inputs(m=M, n=N, k=K, major="k", index=0):
    weights = (on_device(weight(k, n, major), index) for _ in range(2))
    return device_poisoned(m, k, index=index), *weights


def launched(gpu):
    (launch,) = gpu.driver.launches
    return launch


# Descriptors


def check_descriptors(gpu, kernel, major):
    """A launch of `kernel` describes x, gate, up and out as they lie."""
    x, gate, up = inputs(major=major)
    out = device_poisoned(M, N)
    cuswiglu.swiglu(x, gate, up, out=out, variant=kernel.name)
    in_memory = (K, N) if major == "k" else (N, K)
    boxes = dict(kernel.boxes)
    weight = boxes[f"weight_{major}"]
    if major in kernel.fitted_boxes:
        weight = 64, launched(gpu).named["wide_width"], 128
    expected = [
        (x, (K, M), boxes["x"]),
        (gate, in_memory, weight),
        (up, in_memory, weight),
        (out, (N, M), boxes["out"]),
    ]
    for found, (array, extents, box) in zip(launched(gpu).maps, expected, strict=True):
        assert (found.address, found.extents) == (array.data.ptr, extents)
        assert found.row_bytes == 2 * extents[0]
        assert (found.box, found.swizzle) == (box[:2], SWIZZLE[box[2]])
        assert found.element_strides == (1, 1)


@BY_ENTRY
def test_descriptors_say_where_the_matrices_are_and_how_they_are_cut(gpu, kernel, major):
    check_descriptors(gpu, kernel, major)


@BY_KERNEL
@pytest.mark.parametrize("major", ["k", "n"])
def test_descriptors_follow_the_layout_where_a_kernel_has_both(gpu, monkeypatch, kernel, major):
    (both,) = pretend_compiled(monkeypatch, with_layouts(kernel, "k", "n"))
    check_descriptors(gpu, both, major)
    assert launched(gpu).entry == f"{kernel.name}_{major}"


@BY_MAJOR
def test_descriptors_walk_padded_rows(gpu, major):
    x = device_poisoned(M, K + 8)[:, :K]
    gate = on_device(weight(K, N, major, offset=8, pad=16))
    up = on_device(weight(K, N, major, pad=24))
    out = device_poisoned(M, N + 40)[:, 8 : N + 8]
    cuswiglu.swiglu(x, gate, up, out=out)
    width = K if major == "k" else N
    maps = launched(gpu).maps
    assert [found.row_bytes // 2 for found in maps] == [K + 8, width + 16, width + 24, N + 40]
    assert [found.address for found in maps] == [a.data.ptr for a in (x, gate, up, out)]


def test_leading_dimensions_are_rows_of_the_descriptors(gpu):
    _, gate, up = inputs()
    out = device_poisoned(2, 3, 50, N)
    cuswiglu.swiglu(device_poisoned(6, 50, K).reshape(2, 3, 50, K), gate, up, out=out)
    assert launched(gpu).maps[0].extents == (K, 300)
    assert launched(gpu).maps[3].extents == (N, 300)
    assert launched(gpu).named["m"] == 300


@pytest.mark.parametrize("pad", [0, 1, 4])
def test_a_single_row_of_any_stride_is_expressed(gpu, pad):
    _, gate, up = inputs()
    cuswiglu.swiglu(device_poisoned(1, K + pad)[:, :K], gate, up)
    assert launched(gpu).maps[0].extents == (K, 1)


# Arguments and configuration


@BY_ENTRY
def test_the_entry_of_the_layout_is_launched_as_the_manifest_says(gpu, kernel, major):
    cuswiglu.swiglu(*inputs(major=major), variant=kernel.name)
    launch = launched(gpu)
    assert launch.entry == entry_of(kernel, major)
    assert launch.sizes == (M, N, K)
    assert launch.named["raster_rows"] == kernel.raster_rows
    assert launch.cluster == (kernel.cluster_m, 1, 1)
    assert launch.threads == kernel.threads
    assert launch.shared_bytes == kernel.shared_bytes


def test_a_kernel_may_start_before_the_work_ahead_ends_and_loads_no_weights_until_then(gpu):
    """Whatever runs ahead may write gate and up."""
    cuswiglu.swiglu(*inputs())
    assert launched(gpu).overlapping
    assert launched(gpu).named["weights_ahead"] == 0


@pytest.mark.parametrize("index", [0, 1])
def test_work_goes_to_the_device_of_x(gpu, index):
    cuswiglu.swiglu(*inputs(index=index))
    assert launched(gpu).device == index
    assert set(gpu.driver.told("cuDeviceGet")) == {index}
    assert gpu.cupy.device() == -1  # left as it was


# Results


def test_a_new_result_lies_on_the_device_and_is_what_the_kernel_writes(gpu):
    result = cuswiglu.swiglu(*inputs(index=1))
    assert (result.shape, result.dtype.name, result.device.id) == ((M, N), "bfloat16", 1)
    assert launched(gpu).addresses[3] == result.data.ptr


def test_out_is_returned(gpu):
    out = device_poisoned(M, N)
    assert cuswiglu.swiglu(*inputs(), out=out) is out


def test_no_tokens_launch_nothing(gpu):
    x, gate, up = inputs()
    result = cuswiglu.swiglu(x[:0], gate, up)
    assert (result.shape, result.device.id) == ((0, N), 0)
    assert gpu.driver.launches == []


# Streams


class ForeignStream:
    """Another library's stream, speaking CUDA's stream protocol."""

    def __cuda_stream__(self):
        return 0, 77


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (lambda gpu: None, lambda gpu: gpu.cupy.CURRENT_STREAM),
        (lambda gpu: gpu.cupy.cuda.Stream(77), lambda gpu: 77),
        (lambda gpu: 77, lambda gpu: 77),
        (lambda gpu: 0, lambda gpu: 0),
        (lambda gpu: ForeignStream(), lambda gpu: 77),
    ],
    ids=["current", "CuPy's", "handle", "null stream", "another library's"],
)
def test_work_goes_to_the_stream(gpu, stream, handle):
    cuswiglu.swiglu(*inputs(), stream=stream(gpu))
    assert launched(gpu).stream == handle(gpu)


def test_older_cupy_takes_a_stream_too(gpu):
    del gpu.cupy.cuda.Stream.from_external
    cuswiglu.swiglu(*inputs(), stream=77)
    assert launched(gpu).stream == 77


@pytest.mark.parametrize("stream", ["77", True, 7.0], ids=repr)
def test_what_is_no_stream_is_refused(gpu, stream):
    with pytest.raises(TypeError, match=f"stream must be .*, got {type(stream).__name__}"):
        cuswiglu.swiglu(*inputs(), stream=stream)
    assert gpu.driver.launches == []


# Errors


def test_a_failed_launch_is_an_error(gpu):
    gpu.driver.failing["cuLaunchKernelEx"] = Result.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(DriverError, match="cuLaunchKernelEx: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        cuswiglu.swiglu(*inputs())


def test_swizzle_numbers_are_those_of_cuda():
    kinds = cuda.CUtensorMapSwizzle
    assert {
        16: kinds.CU_TENSOR_MAP_SWIZZLE_NONE,
        32: kinds.CU_TENSOR_MAP_SWIZZLE_32B,
        64: kinds.CU_TENSOR_MAP_SWIZZLE_64B,
        128: kinds.CU_TENSOR_MAP_SWIZZLE_128B,
    } == SWIZZLE
