"""Arrays of other libraries on a GPU: the same bits in and out, and the order of streams.

Each library's producer is slow on a stream of its own, and what it made is dropped at once, so that
a missing wait in either direction, or memory given back too early, shows as wrong bits.
"""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

import cuswiglu

M, K, N, K_OUT = 192, 896, 1216, 640
TURNS = 5


@pytest.fixture(scope="module")
def torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return torch


@pytest.fixture(scope="module")
def jax():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.devices()[0].platform not in ("gpu", "cuda"):
        pytest.skip("jax sees no GPU")
    return jax


@pytest.fixture
def inputs(draw):
    x, gate, up = draw(M, K, N)
    return x, gate, up, draw(1, N, K_OUT)[1]


@pytest.fixture
def stream(cupy):
    """A stream that waits for no other."""
    return cupy.cuda.Stream(non_blocking=True)


@pytest.fixture
def delay(cupy):
    """delay(stream): work of some milliseconds on a CuPy stream."""
    big = cupy.random.standard_normal((6000, 6000), dtype=cupy.float32)
    out = cupy.empty_like(big)
    big @ big  # cuBLAS is made ready

    def occupy(stream):
        with stream:
            for _ in range(4):
                cupy.matmul(big, big, out=out)

    cupy.cuda.runtime.deviceSynchronize()
    return occupy


def pattern(cupy, array):
    """The bits of a CuPy array, on the host."""
    return cupy.asnumpy(array.view(np.uint16))


def torch_bits(torch, tensor):
    return tensor.view(torch.int16).cpu().numpy().view(np.uint16)


class Late:
    """A CuPy array that its own stream is still writing; exported by DLPack."""

    def __init__(self, array, stream):
        self.array, self.stream = array, stream

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        with self.stream:
            return self.array.__dlpack__(**options)


class Interface:
    """The same, by __cuda_array_interface__ of 16-bit integers."""

    def __init__(self, array, stream):
        self.array = array
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (array.data.ptr, True),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": "<u2",
            "stream": stream.ptr,
        }


# CuPy, NumPy, cuda.core


@pytest.mark.parametrize("protocol", [Late, Interface])
def test_a_slow_producer_is_waited_for(cupy, inputs, stream, arriving_late, protocol):
    x, *weights = inputs
    expected = pattern(cupy, cuswiglu.mlp(x, *weights))
    for _ in range(TURNS):
        late, busy = arriving_late(x)
        seen = cuswiglu.asarray(protocol(late, busy), dtype="bfloat16", stream=stream)
        assert seen.data.ptr == late.data.ptr
        found = cuswiglu.mlp(seen, *weights, stream=stream)
        stream.synchronize()
        np.testing.assert_array_equal(pattern(cupy, found), expected)


def test_a_slow_producer_is_waited_for_by_a_call(cupy, inputs, stream, arriving_late):
    x, *weights = inputs
    expected = pattern(cupy, cuswiglu.mlp(x, *weights))
    layer = cuswiglu.GatedMLP(*weights)
    for call in (
        lambda x: cuswiglu.mlp(x, *weights, stream=stream),
        lambda x: layer(x, stream=stream),
    ):
        for _ in range(TURNS):
            found = call(Late(*arriving_late(x)))
            stream.synchronize()
            np.testing.assert_array_equal(pattern(cupy, found), expected)


def test_a_numpy_array_gives_close_results_on_the_host_and_its_own_kind(cupy, inputs):
    host = [cupy.asnumpy(array) for array in inputs]
    found = cuswiglu.mlp(*host, like="input")
    assert type(found) is np.ndarray
    expected = cuswiglu.mlp(*inputs).astype(cupy.float64)
    error = cupy.linalg.norm(cupy.asarray(found).astype(cupy.float64) - expected)
    assert float(error / cupy.linalg.norm(expected)) < 2**-8


def test_a_view_of_cuda_core_is_taken(cupy, inputs):
    utils = pytest.importorskip("cuda.core.utils")
    x, *weights = inputs
    current = cupy.cuda.get_current_stream().ptr
    view = utils.StridedMemoryView.from_any_interface(x.view(np.uint16), stream_ptr=current or 1)
    seen = cuswiglu.asarray(view, dtype="bfloat16")
    assert (seen.data.ptr, seen.shape, seen.strides) == (x.data.ptr, x.shape, x.strides)
    expected = pattern(cupy, cuswiglu.mlp(x, *weights))
    np.testing.assert_array_equal(pattern(cupy, cuswiglu.mlp(seen, *weights)), expected)


# torch


@pytest.fixture
def to_torch(torch, cupy):
    """A copy in torch's own memory, with the layout of a transposed view kept."""

    def copy(array):
        transposed = array.strides[0] < array.strides[-1]
        words = cupy.asnumpy((array.T if transposed else array).view(np.int16))
        tensor = torch.from_numpy(words).cuda().view(torch.bfloat16)
        return tensor.T if transposed else tensor

    return copy


def test_torch_tensors_are_seen_where_they_lie(cupy, torch, inputs, to_torch):
    for array in inputs:
        tensor = to_torch(array)
        seen = cuswiglu.asarray(tensor)
        assert (seen.data.ptr, seen.dtype) == (tensor.data_ptr(), ml_dtypes.bfloat16)
        np.testing.assert_array_equal(pattern(cupy, seen.copy()), pattern(cupy, array.copy()))


def test_torch_on_the_host_is_taken(cupy, torch, inputs, to_torch):
    host = [to_torch(array).cpu() for array in inputs]
    found = cuswiglu.mlp(*host, like="input")
    assert (found.dtype, found.device.type) == (torch.bfloat16, "cpu")
    expected = cuswiglu.mlp(*(cuswiglu.asarray(tensor) for tensor in host))
    np.testing.assert_array_equal(torch_bits(torch, found), expected.view(np.uint16))


def test_torch_in_and_out_keeps_the_order_under_load(cupy, torch, inputs, to_torch, stream, delay):
    """x comes late from torch's stream, and torch reads the result as soon as it has it."""
    x, *weights = inputs
    expected = pattern(cupy, cuswiglu.mlp(x, *weights))
    source, weights = to_torch(x), [to_torch(weight) for weight in weights]
    theirs = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(TURNS):
        with torch.cuda.stream(theirs):
            torch.cuda._sleep(20_000_000)
            late = source * 1  # new memory, written after the sleep
            delay(stream)
            found = cuswiglu.mlp(late, *weights, stream=stream, like="input")
            del late
            for _ in range(4):  # torch may use late's memory again: it must not be given back yet
                torch.full_like(source, float("nan"))
            copy = found * 1
        theirs.synchronize()
        assert copy.dtype == torch.bfloat16
        np.testing.assert_array_equal(torch_bits(torch, copy), expected)


def test_torchs_memory_is_not_used_again_while_it_is_read(
    cupy, torch, inputs, to_torch, stream, delay
):
    """Our stream is busy: it reads x long after torch's stream has gone on to other things."""
    x, *weights = inputs
    expected = pattern(cupy, cuswiglu.mlp(x, *weights))
    source = to_torch(x)
    for _ in range(TURNS):
        late = source * 1
        delay(stream)
        found = cuswiglu.mlp(late, *weights, stream=stream)
        del late
        spoiled = [torch.full_like(source, float("nan")) for _ in range(4)]
        stream.synchronize()
        np.testing.assert_array_equal(pattern(cupy, found), expected)
        del spoiled


def test_a_torch_out_is_written_in_place(cupy, torch, inputs, to_torch):
    expected = pattern(cupy, cuswiglu.mlp(*inputs))
    out = torch.full((M, K_OUT), float("nan"), dtype=torch.bfloat16, device="cuda")
    assert cuswiglu.mlp(*(to_torch(array) for array in inputs), out=out) is out
    cupy.cuda.runtime.deviceSynchronize()
    np.testing.assert_array_equal(torch_bits(torch, out), expected)


# JAX


def test_jax_in_and_out_keeps_the_order_under_load(cupy, jax, inputs, stream, delay):
    """x comes late from XLA's stream, is dropped at once, and JAX reads the result behind ours."""
    jnp = jax.numpy
    x, *weights = (cupy.ascontiguousarray(array) for array in inputs)  # as JAX lays them
    expected = pattern(cupy, cuswiglu.mlp(x, *weights))
    big = jax.random.normal(jax.random.PRNGKey(0), (6000, 6000), jnp.float32)

    @jax.jit
    def slow(x, big):
        for _ in range(4):
            big = big @ big / 6000
        return x + jnp.where(jnp.isfinite(big[0, 0]), 0, 0).astype(x.dtype)

    source = jnp.asarray(cupy.asnumpy(x))
    weights = [jnp.asarray(cupy.asnumpy(weight)) for weight in weights]
    jax.block_until_ready(slow(source, big))
    spoil = jax.jit(lambda x: jnp.full_like(x, jnp.nan))
    double = jax.jit(lambda y: y * 2)
    jax.block_until_ready([spoil(source), double(jnp.zeros((M, K_OUT), jnp.bfloat16))])
    for _ in range(TURNS):
        late = slow(source, big)
        delay(stream)
        found = cuswiglu.mlp(late, *weights, stream=stream, like="input")
        del late
        spoiled = [spoil(source) for _ in range(4)]
        doubled = double(found)
        assert (found.dtype, type(found)) == (jnp.bfloat16, type(source))
        np.testing.assert_array_equal(np.asarray(found).view(np.uint16), expected)
        np.testing.assert_array_equal(np.asarray(doubled / 2).view(np.uint16), expected)
        del spoiled


def test_a_jax_array_is_read_and_never_written(cupy, jax, inputs):
    x, gate, up, _ = inputs
    out = jax.numpy.zeros((M, N), jax.numpy.bfloat16)
    with pytest.raises(ValueError, match="out must be writable"):
        cuswiglu.swiglu(x, gate, up, out=out)
    assert not np.asarray(out).any()
