"""Read gated MLP weights from safetensors and GGUF checkpoints.

Needs the ``models`` extra: ``pip install 'cuswiglu[models]'``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ._gguf import GGUFCheckpoint, load_gguf
from ._safetensors import SafetensorsCheckpoint, load_safetensors
from ._weights import Checkpoint, MLPWeights

__all__ = ["MLPWeights", "iter_layers", "layer_count", "load_gguf", "load_safetensors"]


def layer_count(path: str | os.PathLike[str]) -> int:
    """Count the layers of a checkpoint that have a gated MLP.

    Parameters
    ----------
    path : str or os.PathLike
        A ``.gguf`` file, or anything that `load_safetensors` takes.

    Returns
    -------
    int
        Number of layers, at least 1.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, of another kind, holds no gated MLP, or is of a model with an
        activation that is not computed.
    ImportError
        If the ``models`` extra is not installed.

    Examples
    --------
    >>> from cuswiglu.models import layer_count
    >>> layer_count("model.safetensors"), layer_count("model.gguf")
    (2, 2)
    """
    return len(_open(path).layers)


def iter_layers(path: str | os.PathLike[str]) -> Iterator[MLPWeights]:
    """Load the gated MLPs of a checkpoint one after another, opening it once.

    Much faster than calling `load_gguf` for each layer, as a GGUF header takes seconds to parse.

    Parameters
    ----------
    path : str or os.PathLike
        A ``.gguf`` file, or anything that `load_safetensors` takes.

    Returns
    -------
    Iterator of MLPWeights
        One item for each layer, in layer order. A GGUF file stays mapped until the iterator is
        deleted.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, of another kind, holds no gated MLP, or is of a model with an
        activation that is not computed; while iterating, if a layer's MLP or its tensors cannot be
        used.
    ImportError
        If the ``models`` extra is not installed.

    Examples
    --------
    >>> import cuswiglu
    >>> from cuswiglu.models import iter_layers
    >>> layers = [
    ...     cuswiglu.GatedMLP(**weights.arguments, activation=weights.activation)
    ...     for weights in iter_layers("model.gguf")
    ... ]
    >>> len(layers)
    2
    """
    checkpoint = _open(path)
    return (checkpoint.load(layer) for layer in checkpoint.layers)


def _open(path: str | os.PathLike[str]) -> Checkpoint:
    if Path(path).suffix.lower() == ".gguf":
        return GGUFCheckpoint(path)
    return SafetensorsCheckpoint(path)
