"""From a call with CuPy arrays to a launch: descriptors, arguments, grid, stream.

The driver is a recorded fake, and refuses what a driver refuses: see fake_driver.py.
"""

from __future__ import annotations

import math

import pytest
from calls import call, good
from device_arrays import device_poisoned, on_device
from fake_driver import Result, cuda
from problems import weight

import cuswiglu
from cuswiglu.driver import DriverError

M, N, K = 300, 200, 136  # tails in all of them
NAMES = [kernel.name for kernel in cuswiglu.variants()]
KERNELS = {kernel.name: kernel for kernel in cuswiglu.variants()}
BY_NAME = pytest.mark.parametrize("name", NAMES)
BY_MAJOR = pytest.mark.parametrize("major", ["k", "n"])
SWIZZLE = {64: 3, 32: 2, 16: 1}  # box width in elements -> CU_TENSOR_MAP_SWIZZLE_128B, _64B, _32B


def inputs(m=M, n=N, k=K, major="k", index=0):
    weights = (on_device(weight(k, n, major), index) for _ in range(2))
    return device_poisoned(m, k, index=index), *weights


def launched(gpu):
    (launch,) = gpu.driver.launches
    return launch


# Descriptors


@BY_NAME
@BY_MAJOR
def test_descriptors_say_where_the_matrices_are_and_how_they_are_cut(gpu, name, major):
    x, gate, up = inputs(major=major)
    out = device_poisoned(M, N)
    cuswiglu.swiglu(x, gate, up, out=out, variant=name)
    in_memory = (K, N) if major == "k" else (N, K)
    boxes = dict(KERNELS[name].boxes)
    expected = [
        (x, (K, M), boxes["x"]),
        (gate, in_memory, boxes[f"weight_{major}"]),
        (up, in_memory, boxes[f"weight_{major}"]),
        (out, (N, M), boxes["out"]),
    ]
    for found, (array, extents, box) in zip(launched(gpu).maps, expected, strict=True):
        assert (found.address, found.extents) == (array.data.ptr, extents)
        assert found.row_bytes == 2 * extents[0]
        assert (found.box, found.swizzle) == (box, SWIZZLE[box[0]])
        assert found.element_strides == (1, 1)


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
    assert launched(gpu).integers[0] == 300


@pytest.mark.parametrize("pad", [0, 1, 4])
def test_a_single_row_of_any_stride_is_expressed(gpu, pad):
    _, gate, up = inputs()
    cuswiglu.swiglu(device_poisoned(1, K + pad)[:, :K], gate, up)
    assert launched(gpu).maps[0].extents == (K, 1)


# Arguments and configuration


@BY_NAME
@BY_MAJOR
def test_the_entry_of_the_layout_is_launched_as_the_manifest_says(gpu, name, major):
    cuswiglu.swiglu(*inputs(major=major), variant=name)
    kernel, launch = KERNELS[name], launched(gpu)
    assert launch.entry == kernel.entry(major)
    assert launch.integers == (M, N, K, kernel.raster_rows)
    assert launch.cluster == (kernel.cluster_m, kernel.cluster_n, 1)
    assert launch.threads == kernel.threads
    assert launch.shared_bytes == kernel.shared_bytes


@BY_NAME
@pytest.mark.parametrize(("m", "n"), [(1, 8), (300, 200), (20000, 264)])
def test_the_grid_has_a_cluster_a_tile_up_to_what_is_resident(gpu, name, m, n):
    cuswiglu.swiglu(*inputs(m=m, n=n, k=8), variant=name)
    kernel = KERNELS[name]
    tiles = math.ceil(m / (kernel.block_m * kernel.cluster_m)) * math.ceil(
        n / (kernel.block_n * kernel.cluster_n)
    )
    clusters = min(tiles, 132 // kernel.cluster_size)
    assert launched(gpu).grid == (kernel.cluster_m, kernel.cluster_n * clusters, 1)


def test_a_gpu_with_fewer_multiprocessors_gets_a_smaller_grid(gpu):
    gpu.driver.multiprocessors = 78
    cuswiglu.swiglu(*inputs(m=20000, n=264, k=8), variant="dual_pingpong_128x96_1x1")
    assert launched(gpu).grid == (1, 78, 1)


@pytest.mark.parametrize("index", [0, 1])
def test_work_goes_to_the_device_of_x(gpu, index):
    cuswiglu.swiglu(*inputs(index=index))
    assert launched(gpu).device == index
    assert gpu.driver.told("cuDeviceGet") == [index]
    assert gpu.cupy.device() == -1  # left as it was


# Results


def test_a_new_result_lies_on_the_device_and_is_what_the_kernel_writes(gpu):
    result = cuswiglu.swiglu(*inputs(index=1))
    assert (result.shape, result.dtype.name, result.device.id) == ((M, N), "bfloat16", 1)
    assert launched(gpu).maps[3].address == result.data.ptr


def test_out_is_returned(gpu):
    out = device_poisoned(M, N)
    assert cuswiglu.swiglu(*inputs(), out=out) is out


def test_no_tokens_launch_nothing(gpu):
    x, gate, up = inputs()
    result = cuswiglu.swiglu(x[:0], gate, up)
    assert (result.shape, result.device.id) == ((0, N), 0)
    assert gpu.driver.launches == []


@pytest.mark.parametrize("function", ["mlp", "GatedMLP"])
def test_the_mlp_multiplies_what_the_kernel_wrote_by_w_down(gpu, function):
    arguments = {name: on_device(array) for name, array in good("mlp").items()}
    assert call(function, **arguments, stream=77) is arguments["out"]
    ((product, (hidden, down, out), stream),) = gpu.portable
    assert (product, stream, launched(gpu).stream) == ("matmul", 77, 77)
    assert launched(gpu).maps[3].address == hidden.data.ptr
    assert down.data.ptr == arguments["w_down"].data.ptr
    assert out.data.ptr == arguments["out"].data.ptr


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
    assert {16: kinds.CU_TENSOR_MAP_SWIZZLE_32B, 32: kinds.CU_TENSOR_MAP_SWIZZLE_64B} | {
        64: kinds.CU_TENSOR_MAP_SWIZZLE_128B
    } == SWIZZLE
