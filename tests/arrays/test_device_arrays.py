"""CuPy arrays, over unowned memory: views, and every mix of places is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cuswiglu import arrays
from cuswiglu.arrays import allocate
from cuswiglu.common.device import Device
from cuswiglu.common.dtypes import DTYPES
from tests.helpers.calls import FUNCTIONS, call, check_refused, good
from tests.helpers.device_arrays import all_on_device, cupy, device_poisoned, on_device
from tests.helpers.host_arrays import poisoned

DEVICE = Device("cuda", 0)


@pytest.mark.parametrize("index", [0, 3])
def test_a_view_of_a_cupy_array_says_where_and_how_it_lies(index):
    host = poisoned(4, 16)[1:, 2:].T
    found = arrays.view("w_up", on_device(host, index))
    assert found.pointer == host.ctypes.data
    assert (found.shape, found.strides) == ((14, 3), (1, 16))
    assert found.device == Device("cuda", index)
    assert found.writable


def test_a_cupy_array_of_another_dtype_is_refused():
    words = "x must have dtype bfloat16 or float16, got float32"
    with pytest.raises(TypeError, match=words):
        arrays.view("x", on_device(np.zeros((2, 3), np.float32)))


def test_leading_dimensions_of_a_cupy_array_become_rows():
    host = poisoned(2, 3, 16)[:, :, :8]
    found = arrays.matrix(arrays.view("x", on_device(host)))
    assert (found.shape, found.strides, found.pointer) == ((6, 8), (16, 1), host.ctypes.data)
    assert (found.array.shape, found.array.strides) == ((6, 8), (32, 2))
    assert found.array.data.ptr == host.ctypes.data


def test_the_remedy_for_a_strided_cupy_array_is_cupys():
    with pytest.raises(ValueError, match=r"pass cupy.ascontiguousarray\(x\)"):
        arrays.matrix(arrays.view("x", on_device(poisoned(4, 8)[:, ::2])))


def test_overlap_is_found_between_cupy_arrays_and_never_across_devices():
    memory = poisoned(4, 16)
    left, right = (arrays.view("a", on_device(memory[:, part])) for part in np.s_[:8, 8:])
    middle = arrays.view("b", on_device(memory[:, 4:12]))
    elsewhere = arrays.view("b", on_device(memory[:, 4:12], index=1))
    assert not arrays.overlap(left, right)
    assert arrays.overlap(left, middle)
    assert arrays.overlap(middle, right)
    assert not arrays.overlap(left, elsewhere)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("argument", ["x", "w_gate", "w_up", "out"])
def test_a_device_array_among_host_arrays_is_refused(function, argument):
    words = ["must live on the same device", argument, "the CPU", "CUDA device 0"]
    poison = device_poisoned(*good(function)[argument].shape)
    check_refused(function, ValueError, words, **{argument: poison})


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("argument", ["x", "w_gate", "w_up", "out"])
@pytest.mark.parametrize(("other", "place"), [(None, "the CPU"), (1, "CUDA device 1")])
def test_an_array_away_from_the_device_of_the_others_is_refused(function, argument, other, place):
    arguments = all_on_device(function)
    host = poisoned(*arguments[argument].shape)
    arguments[argument] = host if other is None else on_device(host, other)
    with pytest.raises(ValueError, match="must live on the same device") as caught:
        call(function, **arguments)
    for word in (argument, "CUDA device 0", place):
        assert word in str(caught.value)


@pytest.mark.parametrize("function", ["mlp", "GatedMLP"])
def test_a_w_down_away_from_the_others_is_refused(function):
    arguments = all_on_device(function)
    arguments["w_down"] = on_device(poisoned(*arguments["w_down"].shape), 1)
    with pytest.raises(ValueError, match=r"w_gate and w_down must live .* 0 and CUDA device 1"):
        call(function, **arguments)


def test_an_out_that_overlaps_x_is_refused_on_a_device():
    memory = poisoned(4, 32)
    arguments = all_on_device("swiglu")
    arguments |= {"x": on_device(memory[:, :16]), "out": on_device(memory[:, 8:])}
    with pytest.raises(ValueError, match="out must not overlap x"):
        call("swiglu", **arguments)


def test_a_transposed_cupy_weight_is_taken_as_it_lies():
    weight = on_device(poisoned(24, 16)).T
    assert isinstance(weight, cupy.ndarray)
    found = arrays.view("w_up", weight)
    assert (found.shape, found.strides, found.array) == ((16, 24), (1, 16), weight)


# New arrays, made by a part of cupy.ndarray or, where CuPy has no such part, by all of it


@pytest.fixture(params=["quick", "public"])
def maker(request, monkeypatch):
    """`arrays.maker`, by CuPy's part and by all of it."""
    for room in (arrays, allocate):
        monkeypatch.setattr(room, "cupy_module", lambda: cupy)
    if request.param == "public":
        public = SimpleNamespace(ndarray=lambda *arguments: cupy.ndarray(*arguments))
        for room in (arrays, allocate):
            monkeypatch.setattr(room, "cupy_module", lambda: public)
    else:
        assert hasattr(cupy.ndarray, "_init"), "this CuPy has another way: look at arrays.maker"
    return arrays.maker


@pytest.mark.parametrize("shape", [(), (5,), (1, 7), (3, 8), (2, 1, 4), (0, 4)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_new_array_is_what_cupy_makes_of_its_memory(maker, shape, dtype):
    memory = device_poisoned(64).data + 32
    found = maker(dtype)(shape, memory)
    expected = cupy.ndarray(shape, DTYPES[dtype], memory)
    assert type(found) is cupy.ndarray
    for name in ("shape", "strides", "dtype", "size", "nbytes", "ndim", "base"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.data is memory
    assert found.flags.c_contiguous
    assert found.flags.owndata
    assert found.flags.f_contiguous == expected.flags.f_contiguous
