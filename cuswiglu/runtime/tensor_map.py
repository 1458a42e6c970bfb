"""Tensor maps: TMA descriptors, encoded once for each address, and kept."""

from __future__ import annotations

import ctypes
from collections import OrderedDict

from ..problem import Matrix
from .driver import Driver

ALIGNMENT = 128  # of a TMA descriptor in kernel arguments
DESCRIPTOR_BYTES = 128
#: Descriptors kept of one operand: a memory pool gives the same few addresses again, but one plan
#: serves all layers of a model, whose weights lie apart.
KEPT = 256


class AlignedMemory:
    """Zeroed host memory at a multiple of `ALIGNMENT` bytes."""

    def __init__(self, size: int) -> None:
        self._memory = ctypes.create_string_buffer(size + ALIGNMENT)
        self.address = -(-ctypes.addressof(self._memory) // ALIGNMENT) * ALIGNMENT


class TensorMaps:
    """Descriptors of an operand at the addresses it has had; for one thread at a time.

    Parameters
    ----------
    cuda : Driver
    operand : Matrix
    box : (int, int, int)
        As `Driver.encode_tensor_map` takes it.
    """

    def __init__(self, cuda: Driver, operand: Matrix, box: tuple[int, int, int]) -> None:
        self._cuda = cuda
        self._operand = operand
        self._box = box
        self._kept: OrderedDict[int, AlignedMemory] = OrderedDict()

    def at(self, address: int) -> int:
        """Address of the descriptor of the operand at `address`, valid until the next call.

        Raises
        ------
        DriverError
            If the driver refuses to encode it.
        """
        found = self._kept.get(address)
        if found is None:
            found = AlignedMemory(DESCRIPTOR_BYTES)
            operand = self._operand
            self._cuda.encode_tensor_map(
                found.address,
                address,
                (operand.columns, operand.rows),
                operand.row_bytes,
                self._box,
                operand.element,
            )
            self._kept[address] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(address)
        return found.address
