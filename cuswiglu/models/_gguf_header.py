"""Check of a GGUF file's header against the file, before its numbers are used.

The package gguf reads as many elements as a header claims, whether the file has them or not.
The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VERSIONS = (2, 3)
MAX_DIMENSIONS = 4
#: Elements of the metadata, those of arrays included: three times what the largest vocabularies
#: have. The package gguf makes an object of each.
MAX_ELEMENTS = 1 << 22
MAX_DEPTH = 4  # of arrays in arrays
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # type -> bytes
_UINT32, _STRING, _ARRAY = 4, 8, 9
_ALIGNMENT = 32  # of tensors, unless the file says otherwise


class ByteOrderError(ValueError):
    """Error of a file written for machines of the other byte order."""


@dataclass
class _Cursor:
    """Position in a file that never leaves it."""

    data: mmap.mmap
    place: int = 0
    elements: int = 0

    def skip(self, size: int, what: str) -> int:
        """Step over `size` bytes; return where they begin."""
        before = self.place
        if size > len(self.data) - before:
            raise ValueError(
                f"{what} at byte {before} has {size} bytes, the file has {len(self.data) - before} "
                "there"
            )
        self.place += size
        return before

    def number(self, form: str, what: str) -> int:
        """Read a little-endian number of a `struct` format."""
        place = self.skip(struct.calcsize(form), what)
        return int(struct.unpack_from(f"<{form}", self.data, place)[0])

    def string(self, what: str) -> tuple[int, int]:
        """Step over a string; return where it begins and ends."""
        place = self.skip(self.number("Q", f"the length of {what}"), what)
        return place, self.place

    def name(self, what: str) -> str:
        """Read a string as UTF-8."""
        place, end = self.string(what)
        try:
            return self.data[place:end].decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{what} at byte {place} is not UTF-8") from error

    def count(self, number: int, what: str) -> None:
        """Add to the number of elements; refuse more than any file has."""
        self.elements += number
        if self.elements > MAX_ELEMENTS:
            raise ValueError(
                f"{what} at byte {self.place} has {number} elements, which is too many"
            )


def check(file: Path, sizes: Mapping[int, tuple[int, int]]) -> None:
    """Check a GGUF file's header.

    Parameters
    ----------
    file : pathlib.Path
    sizes : mapping
        Tensor type -> elements and bytes of a block. From the first tensor of a type that is not
        here, sizes and offsets are left for the reader to judge.

    Raises
    ------
    ByteOrderError, ValueError
        If a length leads out of the file, there are more elements or dimensions than any file has,
        a key is not UTF-8, or tensors do not lie one behind the other in the file.
    """
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(data)
        if data[cursor.skip(4, "the magic number") :][:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = cursor.number("I", "the version")
        if version & 0xFFFF == 0:
            raise ByteOrderError("it is big-endian")
        if version not in VERSIONS:
            raise ValueError(f"it is of version {version}, versions {VERSIONS} are read")
        tensors = cursor.number("Q", "the number of tensors")
        fields = cursor.number("Q", "the number of fields")
        cursor.count(tensors, "the list of tensors")
        cursor.count(fields, "the metadata")
        alignment = _ALIGNMENT
        for _ in range(fields):
            key = cursor.name("a key")
            kind = cursor.number("I", "a type")
            place = cursor.place
            _skip_value(cursor, kind, f"the value of {key[:64]}")
            if key == "general.alignment" and kind == _UINT32:
                alignment = struct.unpack_from("<I", data, place)[0]
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"general.alignment is {alignment}, which is no power of two")
        _check_tensors(cursor, tensors, alignment, sizes)


def _skip_value(cursor: _Cursor, kind: int, what: str, depth: int = 0) -> None:
    if kind in _SIZES:
        cursor.skip(_SIZES[kind], what)
    elif kind == _STRING:
        cursor.string(what)
    elif kind == _ARRAY and depth < MAX_DEPTH:
        item = cursor.number("I", what)
        number = cursor.number("Q", what)
        cursor.count(number, what)
        if item in _SIZES:
            cursor.skip(_SIZES[item] * number, what)
            return
        for _ in range(number):
            _skip_value(cursor, item, what, depth + 1)
    else:
        raise ValueError(f"{what} at byte {cursor.place} is of type {kind}, which is not read")


def _check_tensors(
    cursor: _Cursor, count: int, alignment: int, sizes: Mapping[int, tuple[int, int]]
) -> None:
    """Check that each tensor's data begins where the one before ends, and all are in the file."""
    ends, expected, known = [], 0, True
    for _ in range(count):
        name = cursor.name("a tensor's name")[:64]
        dimensions = cursor.number("I", f"the number of dimensions of {name}")
        if dimensions > MAX_DIMENSIONS:
            raise ValueError(
                f"{name} has {dimensions} dimensions, at most {MAX_DIMENSIONS} are read"
            )
        extents = [cursor.number("Q", f"a dimension of {name}") for _ in range(dimensions)]
        kind = cursor.number("I", f"the type of {name}")
        offset = cursor.number("Q", f"the offset of {name}")
        known = known and kind in sizes
        if not known:
            continue
        elements, size = sizes[kind]
        if extents and extents[0] % elements:
            raise ValueError(f"{name} has rows of {extents[0]}, no multiple of {elements}")
        if offset != expected:
            raise ValueError(f"{name} is said to begin at {offset}, it can only at {expected}")
        end = offset + math.prod(extents) // elements * size
        ends.append((name, end))
        expected = -(-end // alignment) * alignment
    start = -(-cursor.place // alignment) * alignment
    for name, end in ends:
        if start + end > len(cursor.data):
            raise ValueError(f"{name} ends at byte {start + end}, the file at {len(cursor.data)}")
