"""Arrays of other libraries on the host; results of their kind."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import cuswiglu
from cuswiglu.arrays import dlpack, foreign
from tests.helpers.calls import FUNCTIONS, K_OUT, K, M, N, call, check_refused, good, layer_of
from tests.helpers.capsules import OldProducer, Producer, lent
from tests.helpers.host_arrays import BF16, bits, full, poisoned

PATTERNS = ["uint16", "int16", "V2"]


def bfloat16(x):
    return cuswiglu.asarray(x, dtype="bfloat16")


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
    with pytest.raises(TypeError, match=f"x must have dtype .*, got {name} ") as caught:
        cuswiglu.asarray(x)
    assert 'pass cuswiglu.asarray(x, dtype="bfloat16")' in str(caught.value)


@pytest.mark.parametrize(
    ("x", "name"),
    [
        (np.zeros(4, np.float32), "float32"),
        (np.zeros(4, ">u2"), ">u2"),
        (np.zeros(4, np.float16), "float16"),
        (Producer(poisoned(4), dtype=("float", 16)), "float16"),
        (Producer(poisoned(4), lanes=2), "bfloat16x2"),
    ],
    ids=["float32", "other byte order", "float16", "another library's", "lanes"],
)
def test_nothing_else_is_taken_for_bfloat16(x, name):
    with pytest.raises(TypeError, match=f"x must have dtype bfloat16.*, got {name}"):
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
        return Array(foreign.on_host(memory, BF16))

    module.Array, module.from_dlpack = Array, from_dlpack
    monkeypatch.setitem(sys.modules, "foreign", module)
    return module


def like_input(function, **arguments):
    if function == "GatedMLP":
        layer = layer_of(arguments)
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
