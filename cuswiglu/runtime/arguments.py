"""Kernel arguments: packed in memory, as the driver takes them."""

from __future__ import annotations

import ctypes
import struct

from .tensor_map import AlignedMemory, Descriptors

#: Where the operands lie: x, w_gate, w_up (or the only weight twice), out; of a biased problem then
#: b_gate, b_up (or the only weight's bias, and 0), each 0 where there is none.
Addresses = tuple[int, ...]
_OPERANDS, _BIASES = 4, 2
_NOWHERE: Addresses = (0, 0, 0, 0)


class KernelArguments:
    """Kernel arguments in memory: integers of 8 bytes, and pointers to them and to the operands.

    A kernel that takes an integer, or an FP32 number, of 4 bytes reads the lower half. Biases, and
    an operand without a descriptor, as out of some kernels, are given by their addresses.

    Attributes
    ----------
    integers : array
    address : int
        Of the pointers.
    """

    def __init__(self, descriptors: list[Descriptors], integers: tuple[int, ...]) -> None:
        given = 1 + _BIASES + len(integers)  # by value: out's address, the biases', the integers
        pointers = _OPERANDS - 1 + given
        self._memory = AlignedMemory(8 * (pointers + given))
        self.address = self._memory.address
        values = self.address + 8 * pointers
        self._descriptors = descriptors
        self._addresses: Addresses = _NOWHERE
        self._operands = (ctypes.c_uint64 * pointers).from_address(self.address)
        self._operands[_OPERANDS - 1 :] = [values + 8 * index for index in range(given)]
        self._given = (ctypes.c_uint64 * (1 + _BIASES)).from_address(values)
        self.integers = (ctypes.c_int64 * len(integers)).from_address(values + 8 * (1 + _BIASES))
        self.integers[:] = list(integers)

    def point_at(self, addresses: Addresses) -> None:
        """Where x, the weights, out and the biases lie at the next launch."""
        before, self._addresses = self._addresses, _NOWHERE  # stays so if encoding fails
        for index, descriptors in enumerate(self._descriptors):
            if addresses[index] != before[index]:
                self._operands[index] = descriptors.of(addresses[index])
        if len(self._descriptors) < _OPERANDS:
            self._given[0] = addresses[_OPERANDS - 1]
        if len(addresses) > _OPERANDS:
            self._given[1:] = list(addresses[_OPERANDS:])
        self._addresses = addresses


def float_bits(value: float) -> int:
    """Of an FP32 number."""
    return int.from_bytes(struct.pack("<f", value), "little")
