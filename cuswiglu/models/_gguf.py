"""Read gated MLP weights from GGUF files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ._weights import Checkpoint, MLPWeights, check_file, check_layer, import_optional

_KIND = "a .gguf file"


def load_gguf(path: str | os.PathLike[str], layer: int = 0) -> MLPWeights:
    """Load the gated MLP of one layer of a GGUF file.

    Dequantises the tensors ``blk.{layer}.ffn_{gate,up,down}.weight`` to float32 and rounds them
    to the nearest BF16, ties to even. Each call parses the whole header, which takes seconds for
    a file with a large vocabulary: use `iter_layers` for several layers.

    Parameters
    ----------
    path : str or os.PathLike
        A ``.gguf`` file. Of a model split into several, the one that holds the layer.
    layer : int, default 0
        Number of the layer, from 0.

    Returns
    -------
    MLPWeights
        bfloat16 arrays: gate and up of shape (K, N), down of shape (N, K_out).

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    TypeError
        If `layer` is not an int.
    ValueError
        If `layer` is negative or not in the file, the file is damaged, of another kind or
        big-endian, a tensor has a type that cannot be dequantised, or the shapes do not fit
        together.
    ImportError
        If the ``models`` extra is not installed.
    """
    layer = check_layer(layer)
    return GGUFCheckpoint(path).load(layer)


class GGUFCheckpoint(Checkpoint):
    """A GGUF file, mapped into memory as long as this object lives.

    Parameters
    ----------
    path : str or os.PathLike
        As for `load_gguf`.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is damaged, of another kind, big-endian, or holds no gated MLP.
    ImportError
        If the ``models`` extra is not installed.
    """

    gate_pattern = re.compile(r"^blk\.([0-9]+)\.ffn_gate\.weight$")
    suffixes = ("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")
    example = "blk.0.ffn_gate.weight"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._gguf = import_optional("gguf")
        file = Path(path)
        check_file(file, _KIND)
        try:
            reader = self._gguf.GGUFReader(file)
        except (ValueError, LookupError, OverflowError) as error:
            raise ValueError(
                f"path: {file} is not a GGUF file, or it is damaged ({error}); pass {_KIND}, or "
                "get the file again"
            ) from error
        if reader.byte_order != "I":
            raise ValueError(
                f"path: {file} is written for the other byte order than this machine's; convert "
                "it with gguf-convert-endian"
            )
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        super().__init__(file, self._tensors)

    def _read(self, name: str) -> npt.NDArray[Any]:
        tensor = self._tensors[name]
        try:
            values = self._gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ValueError(
                f"path: {name} in {self.path} has the GGUF type {tensor.tensor_type.name}, which "
                "the package gguf cannot dequantise; pass a file of another type, such as F16, "
                "BF16, Q8_0 or Q4_K, or upgrade gguf"
            ) from error
        return np.asarray(values).astype(ml_dtypes.bfloat16)
