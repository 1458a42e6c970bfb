"""Kernel arguments: packed in memory as the driver takes them, by a variant's own list of them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence

from .tensor_map import AlignedMemory, TensorMaps

#: Arguments that are told by address, in the order of `Addresses`.
OPERANDS = ("x", "w_first", "w_second", "out", "b_first", "b_second")
#: Where the operands lie: x, w_gate, w_up (or the only weight twice), out; of a biased problem then
#: b_gate, b_up (or the only weight's bias, and 0), each 0 where there is none.
Addresses = tuple[int, ...]
_NOWHERE: Addresses = (0,) * len(OPERANDS)
_BYTES = 8  # of an argument: a kernel that takes 4 reads the lower half


class KernelArguments:
    """Arguments of one kernel in memory: pointers to them, and the values.

    Parameters
    ----------
    signature : sequence of (str, str)
        Name and kind of each argument, in order, as the manifest has them (`Variant.arguments`).
    maps : mapping of str to TensorMaps
        For the arguments that are TMA descriptors.
    values : mapping of str to int or float
        For those that are numbers.

    Attributes
    ----------
    address : int
        Address of the array of pointers.

    Raises
    ------
    ValueError
        If the kernel takes an argument that nobody gives.
    """

    def __init__(
        self,
        signature: Sequence[tuple[str, str]],
        maps: Mapping[str, TensorMaps],
        values: Mapping[str, float],
    ) -> None:
        count = len(signature)
        self._memory = AlignedMemory(2 * _BYTES * count)
        self.address = self._memory.address
        self._pointers = (ctypes.c_uint64 * count).from_address(self.address)
        self._values = (ctypes.c_int64 * count).from_address(self.address + _BYTES * count)
        self._addresses: Addresses = _NOWHERE
        # (place in `Addresses`, place among the arguments), of descriptors and of plain addresses.
        self._mapped: list[tuple[int, int, TensorMaps]] = []
        self._plain: list[tuple[int, int]] = []
        self._place = {name: index for index, (name, _) in enumerate(signature)}
        first = ctypes.addressof(self._values)
        for index, (name, kind) in enumerate(signature):
            self._pointers[index] = first + _BYTES * index
            if kind == "tensor_map" and name in maps:
                self._mapped.append((OPERANDS.index(name), index, maps[name]))
            elif kind == "pointer" and name in OPERANDS:
                self._plain.append((OPERANDS.index(name), index))
            elif name in values:
                self._values[index] = _word(values[name], kind)
            else:
                raise ValueError(
                    f"the kernel takes an argument {name!r} ({kind}), which this version does not "
                    "give: rebuild the kernels with it"
                )

    def set(self, name: str, value: int) -> None:
        """Give an integer argument another value, from the next launch on."""
        self._values[self._place[name]] = value

    def point_at(self, addresses: Addresses) -> None:
        """Point at operands that lie at these addresses, from the next launch on.

        Raises
        ------
        DriverError
            If the driver refuses to encode a descriptor.
        """
        before, self._addresses = self._addresses, _NOWHERE  # stays so if encoding fails
        for operand, index, maps in self._mapped:
            if addresses[operand] != before[operand]:
                self._pointers[index] = maps.at(addresses[operand])
        for operand, index in self._plain:
            if operand < len(addresses):
                self._values[index] = addresses[operand]
        self._addresses = addresses


def _word(value: float, kind: str) -> int:
    """Lay a number out in 8 bytes, of which a kernel reads 4 or 8."""
    return float_bits(value) if kind == "float32" else int(value)


def float_bits(value: float) -> int:
    """Bit pattern of a number rounded to FP32."""
    return int.from_bytes(struct.pack("<f", value), "little")
