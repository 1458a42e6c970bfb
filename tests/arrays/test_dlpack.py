"""What a DLPack capsule says of an array, and how long it is held."""

from __future__ import annotations

import numpy as np
import pytest

from cuswiglu.arrays import dlpack
from tests.helpers.capsules import OldProducer, Producer, lent
from tests.helpers.host_arrays import bits, full, poisoned


@pytest.mark.parametrize("kind", [Producer, OldProducer])
def test_a_capsule_says_where_and_how_an_array_lies(kind):
    array = full(np.arange(24).reshape(4, 6))[1:, ::2]
    version = None if kind is OldProducer else (1, 0)
    found = dlpack.read(kind(array, version=version), None)
    assert (found.pointer, found.shape, found.strides) == (array.ctypes.data, (3, 3), (12, 4))
    assert (found.dtype, found.index, found.read_only) == ("bfloat16", None, False)


def test_an_array_without_strides_is_row_major():
    found = dlpack.read(Producer(poisoned(2, 3, 4), strides=None), None)
    assert found.strides == (24, 8, 2)


def test_the_byte_offset_is_part_of_the_address():
    array = poisoned(4)
    assert dlpack.read(Producer(array, offset=6), None).pointer == array.ctypes.data + 6


@pytest.mark.parametrize("read_only", [False, True])
def test_a_versioned_capsule_says_whether_it_may_be_written(read_only):
    assert dlpack.read(Producer(poisoned(4), read_only=read_only), None).read_only is read_only


@pytest.mark.parametrize(("device", "index"), [((1, 0), None), ((2, 3), 3), ((13, 0), -1)])
def test_a_capsule_says_on_which_cuda_device_it_lies_unless_memory_is_managed(device, index):
    assert dlpack.read(Producer(poisoned(4), device=device), None).index == index


@pytest.mark.parametrize(
    ("dtype", "lanes", "name"),
    [
        (("float", 32), 1, "float32"),
        (("uint", 16), 1, "uint16"),
        (("bfloat", 16), 2, "bfloat16x2"),
        ((12, 8), 1, "DLPack 12:8"),
    ],
)
def test_a_capsule_names_its_dtype(dtype, lanes, name):
    assert dlpack.read(Producer(poisoned(4), dtype=dtype, lanes=lanes), None).dtype == name


def test_the_producer_is_told_the_stream_and_none_for_the_host():
    producer = Producer(poisoned(4))
    dlpack.read(producer, 77)
    dlpack.read(producer, None)
    assert producer.told == [77, None]


def test_an_array_is_given_back_when_nobody_holds_it():
    before = len(lent)
    found = dlpack.read(Producer(poisoned(4)), None)
    assert len(lent) == before + 1
    del found
    assert len(lent) == before


def test_a_version_to_come_is_refused():
    with pytest.raises(BufferError, match=r"DLPack 2\.1 is too new"):
        dlpack.read(Producer(poisoned(4), version=(2, 1)), None)


def test_what_is_no_capsule_is_refused():
    class Liar:
        def __dlpack__(self, **_):
            return 5

    with pytest.raises(BufferError, match="__dlpack__ gave 5"):
        dlpack.read(Liar(), None)


@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
def test_bits_are_exported_as_bfloat16(options):
    array = full(np.arange(6).reshape(2, 3))

    class Asked:
        def __dlpack__(self, **_):
            return dlpack.Bfloat16(bits(array)).__dlpack__(**options)

    found = dlpack.read(Asked(), None)
    assert dlpack.Bfloat16(bits(array)).__dlpack_device__() == (1, 0)
    assert (found.dtype, found.pointer, found.shape) == ("bfloat16", array.ctypes.data, (2, 3))
