"""Arrays of other libraries on a CUDA device: where they lie, whom they wait for, how long held."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import cuswiglu
from cuswiglu.arrays import dlpack, foreign
from tests.helpers.calls import K, M, N
from tests.helpers.capsules import Producer, lent
from tests.helpers.device_arrays import cupy, device_poisoned, on_device
from tests.helpers.host_arrays import BF16, poisoned


@pytest.fixture(autouse=True)
def _nothing_held():
    foreign.held.clear()
    yield
    foreign.held.clear()


class Interface:
    """An array of a library with __cuda_array_interface__ alone, over a CuPy array."""

    def __init__(self, array, typestr="<u2", read_only=False, version=3, **more):
        self.array = array
        self.__cuda_array_interface__ = {
            "version": version,
            "data": (array.data.ptr, read_only),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": typestr,
        } | more


def bfloat16(x):
    return cuswiglu.asarray(x, dtype="bfloat16")


def test_a_producer_on_a_device_is_seen_as_cupys_without_a_copy(gpu):
    array = on_device(poisoned(4, 16)[1:, ::2], 3)
    found = cuswiglu.asarray(Producer(array))
    assert isinstance(found, cupy.ndarray)
    assert (found.dtype, found.device.id, found.data.ptr) == (BF16, 3, array.data.ptr)
    assert (found.shape, found.strides) == (array.shape, array.strides)


@pytest.mark.parametrize(
    ("stream", "told"), [(None, 0x5EED), (77, 77), (0, 1)], ids=["current", "handle", "null"]
)
def test_a_producer_is_told_the_stream_of_the_call(gpu, stream, told):
    producers = [Producer(device_poisoned(*shape)) for shape in ((M, K), (K, N), (K, N), (M, N))]
    cuswiglu.swiglu(*producers[:3], out=producers[3], stream=stream)
    assert [producer.told for producer in producers] == [[told]] * 4
    cuswiglu.asarray(producers[0], stream=stream)
    assert producers[0].told == [told] * 2


def test_a_slow_producers_work_is_waited_for_on_the_stream_before_the_launch(gpu):
    """Its __dlpack__ makes the consumer's stream wait, as the protocol has it."""
    order = []

    class Slow(Producer):
        def __dlpack__(self, *, stream=None, max_version=None):
            order.append((stream, len(gpu.driver.launches)))
            return super().__dlpack__(stream=stream, max_version=max_version)

    x, gate, up = (Slow(device_poisoned(*shape)) for shape in ((M, K), (K, N), (K, N)))
    cuswiglu.swiglu(x, gate, up, stream=77)
    assert order == [(77, 0)] * 3
    assert [launch.stream for launch in gpu.driver.launches] == [77]


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("typestr", ["<u2", "<i2", "|V2", "<V2"])
def test_a_cuda_array_interface_is_seen_as_bfloat16_if_it_is_said_to_be(gpu, typestr, device):
    array = on_device(poisoned(4, 16)[1:, ::2], device)
    gpu.cupy.places[array.data.ptr] = device
    found = bfloat16(Interface(array, typestr))
    assert (found.dtype, found.device.id, found.data.ptr) == (BF16, device, array.data.ptr)
    assert (found.shape, found.strides) == (array.shape, array.strides)


def test_a_cuda_array_interface_without_strides_is_row_major(gpu):
    found = bfloat16(Interface(device_poisoned(2, 3, 4), strides=None))
    assert found.strides == (24, 8, 2)


@pytest.mark.parametrize(
    ("typestr", "name", "way_out"),
    [
        ("<u2", "uint16", 'pass cuswiglu.asarray(x, dtype="bfloat16")'),
        ("|V2", "void16", 'pass cuswiglu.asarray(x, dtype="bfloat16")'),
        ("<f4", "float32", "astype"),
        (">u2", ">u2", "astype"),
    ],
)
def test_a_cuda_array_interface_is_never_guessed_to_be_bfloat16(gpu, typestr, name, way_out):
    x = Interface(device_poisoned(M, K), typestr)
    with pytest.raises(
        TypeError, match=f"x must have dtype bfloat16 or float16, got {name} "
    ) as caught:
        cuswiglu.swiglu(x, device_poisoned(K, N), device_poisoned(K, N))
    assert way_out in str(caught.value)
    assert gpu.driver.launches == []


def test_a_masked_cuda_array_interface_is_refused(gpu):
    with pytest.raises(ValueError, match=r"x cannot be taken from its library.*mask"):
        bfloat16(Interface(device_poisoned(4), mask=device_poisoned(4)))


@pytest.mark.parametrize(
    ("more", "waits"),
    [
        ({"version": 2}, []),
        ({"stream": None}, []),
        ({"stream": 99}, [("wait", 77, 99)]),
        ({"stream": 77}, []),
    ],
    ids=["version 2", "none", "another", "the same"],
)
def test_the_stream_of_a_cuda_array_interface_is_waited_for(gpu, more, waits):
    cuswiglu.asarray(Interface(device_poisoned(4), **more), "bfloat16", stream=77)
    assert gpu.cupy.events == waits


def test_an_interface_without_elements_lives_on_the_current_device(gpu):
    with gpu.cupy.cuda.Device(2):
        found = bfloat16(Interface(device_poisoned(0, 4), data=(0, False), strides=None))
    assert (found.shape, found.device.id) == ((0, 4), 2)


def test_a_result_like_the_input_is_handed_over_on_the_stream_of_the_call(gpu, monkeypatch):
    """The exporter is asked while that stream is current: CuPy makes the consumer's wait for it."""
    handed = []

    class Array(Producer):
        def __array_namespace__(self):
            return SimpleNamespace(from_dlpack=from_dlpack)

    def from_dlpack(exporter):
        stream, device = gpu.cupy.cuda.get_current_stream().ptr, gpu.cupy.device()
        handed.append((exporter, stream, device, len(gpu.driver.launches)))
        return "theirs"

    x, gate, up = (device_poisoned(*shape, index=1) for shape in ((M, K), (K, N), (K, N)))
    assert cuswiglu.swiglu(Array(x), gate, up, stream=77, like="input") == "theirs"
    ((exporter, *where),) = handed
    assert where == [77, 1, 1]
    assert isinstance(exporter, dlpack.Bfloat16)
    assert exporter.pattern.dtype == np.uint16
    assert exporter.pattern.data.ptr == gpu.driver.launches[0].addresses[3]


def test_a_result_like_a_cupy_array_is_one(gpu):
    x, gate, up = (device_poisoned(*shape) for shape in ((M, K), (K, N), (K, N)))
    assert isinstance(cuswiglu.swiglu(x, gate, up, like="input"), cupy.ndarray)


# How long a library's memory on a device is held


def borrow_for(gpu, stream):
    """Borrow an array for a stream, and let go of it."""
    cuswiglu.asarray(Producer(device_poisoned(4)), stream=stream)


def test_memory_is_held_until_the_stream_that_read_it_is_done(gpu):
    """Its library may give it to others at once, and does not know the stream."""
    before = len(lent)
    gpu.cupy.busy = {77}
    borrow_for(gpu, 77)
    borrow_for(gpu, 77)
    assert len(lent) == before + 2
    gpu.cupy.busy = set()
    borrow_for(gpu, 77)  # gives back what is done
    assert len(lent) == before + 1


def test_a_stream_that_is_busy_keeps_nothing_of_another(gpu):
    before = len(lent)
    gpu.cupy.busy = {77}
    borrow_for(gpu, 77)
    for _ in range(3):
        borrow_for(gpu, 78)
    assert len(lent) == before + 2  # of 77, and the last of 78


def test_inputs_are_held_while_a_call_runs(gpu):
    before = len(lent)
    gpu.cupy.busy = {77}
    inputs = (Producer(device_poisoned(*shape)) for shape in ((M, K), (K, N), (K, N)))
    cuswiglu.swiglu(*inputs, stream=77)
    assert len(lent) == before + 3


def test_a_captured_stream_is_not_asked_for_events(gpu):
    stream = gpu.cupy.cuda.Stream(77)
    stream.begin_capture()
    before = len(lent)
    borrow_for(gpu, stream)
    stream.captured = None
    assert len(lent) == before
    assert not foreign.held
