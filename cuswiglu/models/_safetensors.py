"""Read gated MLP weights from safetensors checkpoints of Hugging Face models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from . import _activations, _architectures
from ._weights import (
    Checkpoint,
    MLPWeights,
    check_file,
    check_layer,
    files_of,
    import_optional,
    read_json,
)

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_KIND = "a .safetensors file, a model.safetensors.index.json, or a directory holding one of them"


def load_safetensors(path: str | os.PathLike[str], layer: int = 0) -> MLPWeights:
    """Load the gated MLP of one layer of a Llama, Mistral, Qwen or Phi-3 style checkpoint.

    Reads only the tensors ``layers.{layer}.mlp.{gate,up,down}_proj.weight``, and ``.bias`` where
    there is one, whatever comes before ``layers``, or ``gate_up_proj`` for two of them; other names
    are in a table in ``cuswiglu/models/_architectures.py``. BF16 is kept as it is; F16 and F32 are
    rounded to the nearest BF16, ties to even. The activation is read from the ``config.json``
    beside the file.

    Parameters
    ----------
    path : str or os.PathLike
        A ``.safetensors`` file; a directory holding ``model.safetensors`` or
        ``model.safetensors.index.json``; or such an index file.
    layer : int, default 0
        Number of the layer, from 0.

    Returns
    -------
    MLPWeights
        bfloat16 arrays: gate and up of shape (K, N), down of shape (N, K_out).

    Raises
    ------
    FileNotFoundError
        If the file, or a shard that the index names, does not exist.
    TypeError
        If `layer` is not an int.
    ValueError
        If `layer` is negative or not in the checkpoint, the file is damaged or of another kind,
        the index names a file outside its directory, a tensor has another dtype, the shapes do
        not fit together, the model uses an activation that is not computed, or its MLP has
        experts or anything else besides the three weights and their biases.
    ImportError
        If the ``models`` extra is not installed.

    Warns
    -----
    UserWarning
        If there is no ``config.json``, and SiLU is taken for granted.

    Examples
    --------
    >>> from cuswiglu.models import load_safetensors
    >>> weights = load_safetensors("model.safetensors", layer=1)
    >>> weights.gate.shape, weights.down.shape, weights.activation
    ((64, 192), (192, 64), 'silu')
    """
    layer = check_layer(layer)
    return SafetensorsCheckpoint(path).load(layer)


class SafetensorsCheckpoint(Checkpoint):
    """Checkpoint in safetensors files: one, or several shards.

    Parameters
    ----------
    path : str or os.PathLike
        As for `load_safetensors`.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is damaged, of another kind, holds no gated MLP, or is of a model with an
        activation that is not computed.
    ImportError
        If the ``models`` extra is not installed.
    """

    table = _architectures.SAFETENSORS

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._safetensors = import_optional("safetensors")
        file = _find_file(Path(path))
        if file.suffix == ".json":
            self._files = _read_index(file)
        else:
            with self._open(file) as tensors:
                self._files = dict.fromkeys(tensors.keys(), file)
        super().__init__(file, self._files)
        self.activation = _activations.of_safetensors(file, self._files)

    def _open(self, file: Path) -> Any:
        check_file(file, _KIND)
        try:
            return self._safetensors.safe_open(str(file), framework="numpy")
        except self._safetensors.SafetensorError as error:
            raise ValueError(
                f"path: {file} is not a safetensors file, or it is damaged ({error}); pass "
                f"{_KIND}, or get the file again"
            ) from error

    def _read(self, name: str) -> npt.NDArray[Any]:
        file = self._files[name]
        with self._open(file) as tensors:
            held = tensors.keys()
            if name not in held:
                raise ValueError(
                    f"path: {self.path} says that {name} is in {file.name}, which does not hold "
                    "it; get both files again from one source"
                )
            dtype = tensors.get_slice(name).get_dtype()
            if dtype not in ("BF16", "F16", "F32"):
                raise ValueError(
                    f"path: {name} in {file} has dtype {dtype}; only BF16, F16 and F32 are "
                    "supported: convert the checkpoint to one of them"
                )
            values: npt.NDArray[Any] = tensors.get_tensor(name)
        if dtype == "BF16":
            return values
        return values.astype(np.float32, copy=False).astype(ml_dtypes.bfloat16)


def _find_file(path: Path) -> Path:
    if not path.is_dir():
        check_file(path, _KIND)
        return path
    for name in (_SINGLE, _INDEX):
        if (path / name).is_file():
            return path / name
    raise FileNotFoundError(
        f"path: the directory {path} holds neither {_SINGLE} nor {_INDEX}; it should be {_KIND}"
        f"{files_of(path, '.safetensors')}"
    )


def _read_index(file: Path) -> dict[str, Path]:
    try:
        index = read_json(file)
    except ValueError as error:
        raise ValueError(f"path: {file} is not valid JSON ({error}); pass {_KIND}") from error
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        raise ValueError(
            f"path: {file} has no 'weight_map' object, so it is no index of shards; pass {_KIND}"
        )
    return {name: file.parent / _check_shard(shard, file) for name, shard in weight_map.items()}


def _check_shard(shard: object, index: Path) -> str:
    if not isinstance(shard, str) or Path(shard).is_absolute() or ".." in Path(shard).parts:
        raise ValueError(
            f"path: {index} names the shard {shard!r}; a shard must be a file name inside the "
            "directory of the index, without '..': correct the index or get it again"
        )
    return shard
