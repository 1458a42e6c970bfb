"""Arrays of other libraries on the host and, pretended, on a CUDA device; results of their kind."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from calls import FUNCTIONS, K_OUT, K, M, N, call, check_refused, good
from capsules import OldProducer, Producer, lent
from device_arrays import cupy, device_poisoned, on_device
from host_arrays import BF16, bits, full, poisoned

import cuswiglu
from cuswiglu import borrowed, dlpack

PATTERNS = ["uint16", "int16", "V2"]


@pytest.fixture(autouse=True)
def _nothing_held():
    borrowed._held.clear()
    yield
    borrowed._held.clear()


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


# On the host


def test_a_numpy_array_is_what_the_library_sees():
    array = poisoned(2, 3)
    assert cuswiglu.asarray(array) is array


@pytest.mark.parametrize("kind", [Producer, OldProducer])
def test_a_producer_on_the_host_is_seen_as_numpys_without_a_copy(kind):
    array = full(np.arange(24).reshape(4, 6))[1:, ::2]
    found = cuswiglu.asarray(kind(array))
    assert found.dtype == BF16
    assert (found.ctypes.data, found.strides) == (array.ctypes.data, array.strides)
    np.testing.assert_array_equal(bits(found), bits(array))


def test_pinned_memory_is_on_the_host():
    array = full([1, 2, 3])
    assert cuswiglu.asarray(Producer(array, device=(3, 0))).ctypes.data == array.ctypes.data


def test_an_array_without_elements_is_taken():
    producer = Producer(poisoned(0, 4), pointer=0, strides=None)
    assert cuswiglu.asarray(producer).shape == (0, 4)


@pytest.mark.parametrize("read_only", [False, True])
def test_read_only_memory_stays_so(read_only):
    found = cuswiglu.asarray(Producer(poisoned(4), read_only=read_only))
    assert found.flags.writeable is not read_only


def test_the_array_is_held_as_long_as_what_is_seen_of_it():
    before = len(lent)
    found = cuswiglu.asarray(Producer(poisoned(4)))[1:]
    assert len(lent) == before + 1
    del found
    assert len(lent) == before


@pytest.mark.parametrize("dtype", PATTERNS)
def test_a_bit_pattern_is_taken_for_bfloat16_if_it_is_said_to_be(dtype):
    array = full(np.arange(24).reshape(4, 6))[:, ::2]
    found = bfloat16(array.view(dtype))
    assert (found.dtype, found.ctypes.data) == (BF16, array.ctypes.data)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("dtype", [("uint", 16), ("int", 16), ("bfloat", 16)])
def test_so_is_that_of_another_library(dtype):
    array = full(np.arange(6))
    np.testing.assert_array_equal(bfloat16(Producer(array, dtype=dtype)), array)


@pytest.mark.parametrize(
    ("x", "name"),
    [
        (np.zeros(4, np.uint16), "uint16"),
        (np.zeros(4, "V2"), "void16"),
        (Producer(poisoned(4), dtype=("int", 16)), "int16"),
    ],
    ids=["uint16", "void16", "another library's"],
)
def test_a_bit_pattern_is_never_guessed(x, name):
    with pytest.raises(TypeError, match=f"x must have dtype bfloat16, got {name} ") as caught:
        cuswiglu.asarray(x)
    assert 'pass cuswiglu.asarray(x, dtype="bfloat16")' in str(caught.value)


@pytest.mark.parametrize(
    ("x", "name"),
    [
        (np.zeros(4, np.float32), "float32"),
        (np.zeros(4, ">u2"), ">u2"),
        (Producer(poisoned(4), dtype=("float", 16)), "float16"),
        (Producer(poisoned(4), lanes=2), "bfloat16x2"),
    ],
    ids=["float32", "other byte order", "another library's", "lanes"],
)
def test_nothing_else_is_taken_for_bfloat16(x, name):
    with pytest.raises(TypeError, match=f"x must have dtype bfloat16, got {name} .*supported"):
        bfloat16(x)


@pytest.mark.parametrize("dtype", ["float32", "uint16", "duel", 3], ids=str)
def test_another_dtype_cannot_be_asked_for(dtype):
    with pytest.raises(TypeError, match="dtype must be 'bfloat16' or None"):
        cuswiglu.asarray(poisoned(4), dtype=dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", BF16, BF16.type], ids=["name", "dtype", "type"])
def test_bfloat16_is_asked_for_by_any_of_its_names(dtype):
    assert cuswiglu.asarray(np.zeros(4, np.uint16), dtype=dtype).dtype == BF16


def test_a_stream_is_refused_for_an_array_on_the_host():
    with pytest.raises(TypeError, match="stream must be None for arrays on the CPU"):
        cuswiglu.asarray(poisoned(4), stream=0)


@pytest.mark.parametrize("value", [None, [1.0], 2], ids=repr)
def test_what_is_no_array_is_refused(value):
    with pytest.raises(TypeError, match="x must be a NumPy or CuPy array, or another library's"):
        cuswiglu.asarray(value)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_devices_are_refused(function):
    words = ["x must live on the CPU or on a CUDA device", "got Producer", "device type 10"]
    check_refused(function, TypeError, words, x=Producer(poisoned(M, K), device=(10, 0)))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_library_refuses_is_said_with_the_name_of_the_argument(function):
    class Guarded(Producer):
        def __dlpack__(self, **_):
            raise BufferError("it requires grad")

    words = ["w_gate cannot be taken from its library, got Guarded: it requires grad"]
    check_refused(function, ValueError, words, w_gate=Guarded(poisoned(K, N)))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_call_with_arrays_of_another_library_gives_the_bits_of_numpys(function):
    arguments = good(function)
    expected = call(function, **arguments).copy()
    arguments["out"] = poisoned(*expected.shape)
    given = {name: Producer(array) for name, array in arguments.items()}
    assert call(function, **given) is given["out"]
    np.testing.assert_array_equal(bits(arguments["out"]), bits(expected))
    del given["out"]
    found = call(function, **given)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(bits(found), bits(expected))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_read_only_out_of_another_library_is_refused(function):
    out = poisoned(M, N if function == "swiglu" else K_OUT)
    words = ["out must be writable, got a read-only Producer"]
    check_refused(function, ValueError, words, out=Producer(out, read_only=True))
    assert np.isnan(out).all()


# Results of the caller's kind


@pytest.fixture
def library(monkeypatch):
    """A module with from_dlpack, whose arrays are Producers that hold what they were made of."""
    module = SimpleNamespace()

    class Array(Producer):
        __module__ = "foreign.core"

    def from_dlpack(exporter):
        capsule = exporter.__dlpack__(max_version=(1, 0))
        memory = dlpack.read(SimpleNamespace(__dlpack__=lambda **_: capsule), None)
        return Array(borrowed.on_host(memory, BF16))

    module.Array, module.from_dlpack = Array, from_dlpack
    monkeypatch.setitem(sys.modules, "foreign", module)
    return module


def like_input(function, **arguments):
    if function == "GatedMLP":
        layer = cuswiglu.GatedMLP(*(arguments[name] for name in ("w_gate", "w_up", "w_down")))
        return layer(arguments["x"], out=arguments.get("out"), like="input")
    if function == "swiglu":
        del arguments["w_down"]
    return getattr(cuswiglu, function)(**arguments, like="input")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_result_like_the_input_is_of_its_library(function, library):
    arguments = good(function)
    expected = call(function, **arguments)
    del arguments["out"]
    found = like_input(function, **arguments | {"x": library.Array(arguments["x"])})
    assert type(found) is library.Array
    np.testing.assert_array_equal(bits(found.array), bits(expected))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_result_like_a_numpy_array_is_one(function):
    arguments = good(function)
    del arguments["out"]
    assert type(like_input(function, **arguments)) is np.ndarray


@pytest.mark.parametrize("function", FUNCTIONS)
def test_out_is_returned_whatever_it_is_like(function, library):
    arguments = good(function)
    arguments["x"] = library.Array(arguments["x"])
    assert like_input(function, **arguments) is arguments["out"]
    assert not np.isnan(arguments["out"]).any()


def test_a_library_of_the_array_api_is_asked_for_its_namespace(library):
    class Array(Producer):
        def __array_namespace__(self):
            return SimpleNamespace(from_dlpack=lambda exporter: ("made", exporter))

    arguments = good("swiglu")
    x, gate, up = (arguments[name] for name in ("x", "w_gate", "w_up"))
    word, exporter = cuswiglu.swiglu(Array(x), gate, up, like="input")
    found = library.from_dlpack(exporter).array
    assert word == "made"
    np.testing.assert_array_equal(bits(found), bits(cuswiglu.swiglu(x, gate, up)))


@pytest.mark.parametrize("like", ["output", 1, np.zeros(2)], ids=["text", "number", "array"])
def test_another_like_is_refused(like):
    arguments = good("swiglu")
    del arguments["w_down"]
    with pytest.raises(ValueError, match="like must be None or 'input', got"):
        cuswiglu.swiglu(**arguments, like=like)
    assert np.isnan(arguments["out"]).all()


def test_a_library_without_a_way_back_is_refused_before_anything_is_written():
    arguments = good("swiglu")
    del arguments["w_down"]
    arguments["x"] = Producer(arguments["x"])
    with pytest.raises(TypeError, match="like='input' needs an x whose library has from_dlpack"):
        cuswiglu.swiglu(**arguments, like="input")
    assert np.isnan(arguments["out"]).all()


# JAX itself, on the host


@pytest.fixture
def jnp():
    jax = pytest.importorskip("jax", reason="another library with BF16")
    jax.config.update("jax_platforms", "cpu")
    return jax.numpy


@pytest.mark.parametrize("function", FUNCTIONS)
def test_jax_arrays_go_in_and_come_out(function, jnp):
    arguments = good(function)
    expected = call(function, **arguments).copy()
    given = {name: jnp.asarray(array) for name, array in arguments.items() if name != "out"}
    found = like_input(function, **given)
    assert isinstance(found, type(given["x"]))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(bits(found), bits(expected))


def test_a_jax_array_is_seen_where_it_lies_and_read_only(jnp):
    x = jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    found = cuswiglu.asarray(x)
    assert found.ctypes.data == x.unsafe_buffer_pointer()
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, np.arange(6).reshape(2, 3))


def test_a_slow_jax_array_is_waited_for(jnp):
    """It comes from a computation that has not ended when it is taken."""
    import jax

    @jax.jit
    def slow(x, big):
        for _ in range(8):
            big = big @ big / 900
        return jnp.where(jnp.isfinite(big[0, 0]), x, 0)

    x, big = jnp.asarray(full(np.arange(64))), jnp.ones((900, 900))
    slow(x, big).block_until_ready()
    late = slow(x, big)
    np.testing.assert_array_equal(cuswiglu.asarray(late), np.arange(64))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_jax_array_is_never_written(function, jnp):
    out = jnp.full(good(function)["out"].shape, jnp.nan, jnp.bfloat16)
    check_refused(function, ValueError, ["out must be writable, got a read-only Array"], out=out)
    assert np.isnan(np.asarray(out)).all()


# On a CUDA device


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
        ("<f2", "float16", "astype"),
        (">u2", ">u2", "astype"),
    ],
)
def test_a_cuda_array_interface_is_never_guessed_to_be_bfloat16(gpu, typestr, name, way_out):
    x = Interface(device_poisoned(M, K), typestr)
    with pytest.raises(TypeError, match=f"x must have dtype bfloat16, got {name} ") as caught:
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
    assert exporter._pattern.dtype == np.uint16
    assert exporter._pattern.data.ptr == gpu.driver.launches[0].maps[3].address


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
    assert not borrowed._held
