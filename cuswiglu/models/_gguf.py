"""Read gated MLP weights from GGUF files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from . import _activations, _architectures, _gguf_header
from ._weights import Checkpoint, MLPWeights, check_file, check_layer, import_optional

_KIND = "a .gguf file"


def load_gguf(path: str | os.PathLike[str], layer: int = 0) -> MLPWeights:
    """Load the gated MLP of one layer of a GGUF file.

    Dequantises the tensors ``blk.{layer}.ffn_{gate,up,down}.weight``, and ``.bias`` where there is
    one, to float32 and rounds them to the nearest BF16, ties to even; Phi-3's ``ffn_up`` holds gate
    and up. The activation follows from the file's architecture, by a table in
    ``cuswiglu/models/_architectures.py``. Each call parses the whole header, which takes seconds
    for a file with a large vocabulary: use `iter_layers` for several layers.

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
        big-endian, a tensor has a type that cannot be dequantised, the shapes do not fit
        together, the model uses an activation that is not computed, or its MLP has experts or
        anything else besides the three weights and their biases.
    ImportError
        If the ``models`` extra is not installed.

    Warns
    -----
    UserWarning
        If the file does not say its architecture, and SiLU is taken for granted.

    Examples
    --------
    >>> from cuswiglu.models import load_gguf
    >>> weights = load_gguf("model.gguf", layer=1)
    >>> weights.gate.shape, weights.gate.dtype.name, weights.source
    ((64, 192), 'bfloat16', 'model.gguf layer 1')
    """
    layer = check_layer(layer)
    return GGUFCheckpoint(path).load(layer)


class GGUFCheckpoint(Checkpoint):
    """Checkpoint in a GGUF file, which is mapped into memory as long as this object lives.

    Parameters
    ----------
    path : str or os.PathLike
        As for `load_gguf`.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is damaged, of another kind, big-endian, holds no gated MLP, or is of a model
        with an activation that is not computed.
    ImportError
        If the ``models`` extra is not installed.
    """

    table = _architectures.GGUF

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._gguf = import_optional("gguf")
        file = Path(path)
        check_file(file, _KIND)
        try:
            _gguf_header.check(file, self._gguf.GGML_QUANT_SIZES)
            reader = self._gguf.GGUFReader(file)
        except _gguf_header.ByteOrderError as error:
            raise ValueError(
                f"path: {file} is written for the other byte order than this machine's; convert "
                "it with gguf-convert-endian"
            ) from error
        except (ValueError, LookupError, OverflowError) as error:
            if self._gguf.GGMLQuantizationType.__name__ in str(error):  # "N is not a valid ..."
                raise ValueError(
                    f"path: {file} holds a tensor of a GGUF type that the package gguf does not "
                    f"know, and so cannot dequantise: {error}; pass a file of other types, such as "
                    "F16, BF16, Q8_0 or Q4_K, or upgrade gguf"
                ) from error
            raise ValueError(
                f"path: {file} is not a GGUF file, or it is damaged ({error}); pass {_KIND}, or "
                "get the file again"
            ) from error
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        super().__init__(file, self._tensors)
        architecture = _text(reader, "general.architecture", file)
        stated = _text(reader, f"{architecture}.hidden_activation", file)
        self.activation = _activations.of_gguf(file, architecture, stated, self._tensors)

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


def _text(reader: Any, key: str, file: Path) -> str | None:
    """Text of a key in a file's metadata; None if it is not there or not text."""
    field = reader.get_field(key)
    try:
        value = None if field is None else field.contents()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"path: {file} is damaged ({key} in its metadata is not UTF-8); get the file again"
        ) from error
    return value if isinstance(value, str) else None
