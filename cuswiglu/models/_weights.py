"""The weights of one gated MLP, and what the checkpoint readers share."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class MLPWeights:
    """Weights of one gated MLP, ``down(silu(x @ gate) * (x @ up))``.

    Attributes
    ----------
    gate, up : ndarray of bfloat16, shape (K, N)
        Transposed views of the row-major (N, K) arrays of the checkpoint.
    down : ndarray of bfloat16, shape (N, K_out)
        Transposed view of the row-major (K_out, N) array of the checkpoint.
    source : str
        Where the weights come from, for instance ``"model.safetensors layer 3"``.

    Raises
    ------
    ValueError
        If the three shapes do not belong to one gated MLP.
    """

    gate: npt.NDArray[Any]
    up: npt.NDArray[Any]
    down: npt.NDArray[Any]
    source: str

    def __post_init__(self) -> None:
        gate, up, down = self.gate.shape, self.up.shape, self.down.shape
        if not (len(gate) == len(down) == 2 and gate == up and gate[1] == down[0]):
            raise ValueError(
                f"{self.source}: gate has shape {gate}, up {up} and down {down}; a gated MLP "
                "needs gate and up (K, N) and down (N, K_out): check that the checkpoint is "
                "complete and that the three tensors are of one MLP"
            )


class Checkpoint(ABC):
    """An opened checkpoint, from which the gated MLP of a layer can be loaded.

    Parameters
    ----------
    path : pathlib.Path
        The file, for messages.
    names : iterable of str
        Names of all tensors in the checkpoint.

    Raises
    ------
    ValueError
        If no tensor is the gate of a gated MLP.
    """

    gate_pattern: ClassVar[re.Pattern[str]]
    suffixes: ClassVar[tuple[str, str, str]]
    example: ClassVar[str]

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        self.path = path
        self._names = frozenset(names)
        self._gates: dict[int, list[str]] = {}
        for name in sorted(self._names):
            if match := self.gate_pattern.search(name):
                self._gates.setdefault(int(match[1]), []).append(name)
        if not self._gates:
            some = ", ".join(sorted(self._names)[:5]) or "none at all"
            raise ValueError(
                f"path: {path} has no layer with a gated MLP: none of its tensors is named like "
                f"{self.example!r}; the first ones are: {some}"
            )

    @property
    def layers(self) -> list[int]:
        """Numbers of the layers that have a gated MLP, ascending."""
        return sorted(self._gates)

    def load(self, layer: int) -> MLPWeights:
        """Load the gated MLP of one layer.

        Parameters
        ----------
        layer : int
            One of `layers`.

        Returns
        -------
        MLPWeights
            The weights as bfloat16.

        Raises
        ------
        ValueError
            If the layer is not there, is incomplete, or has tensors that cannot be used.
        """
        prefix = self._gate_name(layer).removesuffix(self.suffixes[0])
        names = [prefix + suffix for suffix in self.suffixes]
        if missing := [name for name in names if name not in self._names]:
            raise ValueError(
                f"layer: layer {layer} of {self.path} lacks {', '.join(missing)}; a gated MLP "
                f"needs {', '.join(names)}: get a complete checkpoint"
            )
        gate, up, down = (self._read(name).T for name in names)
        return MLPWeights(gate, up, down, f"{self.path.name} layer {layer}")

    def _gate_name(self, layer: int) -> str:
        candidates = self._gates.get(layer, [])
        if not candidates:
            raise ValueError(
                f"layer: {self.path} has no layer {layer} with a gated MLP; it has "
                f"{_describe(self.layers)}: pass one of those"
            )
        if len(candidates) > 1:
            raise ValueError(
                f"layer: layer {layer} of {self.path} is ambiguous, several tensors could be its "
                f"gate: {', '.join(candidates)}; pass a file that holds only one of these models"
            )
        return candidates[0]

    @abstractmethod
    def _read(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor as a row-major bfloat16 array of the checkpoint's own shape."""


def check_layer(layer: int) -> int:
    """Return `layer` if it is a whole number of 0 or more.

    Parameters
    ----------
    layer : int
        Layer number as the caller gave it.

    Returns
    -------
    int
        The same number.

    Raises
    ------
    TypeError
        If it is not an integer.
    ValueError
        If it is negative.
    """
    if isinstance(layer, bool) or not isinstance(layer, (int, np.integer)):
        raise TypeError(
            f"layer must be an int, got {layer!r} of type {type(layer).__name__}: "
            "pass the number of the layer, 0 for the first"
        )
    if layer < 0:
        raise ValueError(f"layer must be 0 or more, got {layer}: pass 0 for the first layer")
    return int(layer)


def check_file(path: Path, kind: str) -> None:
    """Raise unless `path` is an existing file.

    Parameters
    ----------
    path : pathlib.Path
        The path to check.
    kind : str
        What the file should be, for the message.

    Raises
    ------
    FileNotFoundError
        If nothing is there.
    ValueError
        If it is not a file.
    """
    if not path.exists():
        raise FileNotFoundError(f"path: {path} does not exist; it should be {kind}")
    if not path.is_file():
        raise ValueError(f"path: {path} is not a file; it should be {kind}")


def import_optional(name: str) -> Any:
    """Import a module of the ``models`` extra.

    Parameters
    ----------
    name : str
        Name of the module.

    Returns
    -------
    module
        The imported module.

    Raises
    ------
    ImportError
        If it cannot be imported; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"reading this checkpoint needs the package {name}: pip install 'cuswiglu[models]'"
        ) from error


def _describe(layers: list[int]) -> str:
    count = "1 layer" if len(layers) == 1 else f"{len(layers)} layers"
    if len(layers) > 2 and layers[-1] - layers[0] == len(layers) - 1:
        return f"{count}: {layers[0]} to {layers[-1]}"
    return f"{count}: {', '.join(map(str, layers))}"
