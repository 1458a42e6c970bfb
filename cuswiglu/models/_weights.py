"""`MLPWeights`, the weights of one gated MLP, and the base of the checkpoint readers."""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ._architectures import EXPERTS, LANGUAGE_PREFIXES, OBSTACLES, Names

_LISTED = 5  # names of tensors in a message
_FILES = 8  # names of files
MAX_JSON_BYTES = 64 << 20  # several times the largest models' index


@dataclass(frozen=True, eq=False)
class MLPWeights:
    """Weights of one gated MLP, ``activation(x @ gate) * (x @ up) @ down``, and its biases.

    Attributes
    ----------
    gate, up : ndarray of bfloat16, shape (K, N)
        Transposed views of the row-major (N, K) arrays of the checkpoint, or of the two halves of
        its one (2N, K) array.
    down : ndarray of bfloat16, shape (N, K_out)
        Transposed view of the row-major (K_out, N) array of the checkpoint.
    source : str
        Where the weights come from, for instance ``"model.safetensors layer 3"``.
    activation : str
        Name of the activation that the model applies to gate.
    b_gate, b_up : ndarray of bfloat16, shape (N,), or None
    b_down : ndarray of bfloat16, shape (K_out,), or None
        Biases of the three products, where the model has them.

    Raises
    ------
    ValueError
        If the shapes do not belong to one gated MLP.

    Examples
    --------
    >>> import numpy as np
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> from cuswiglu.models import load_safetensors
    >>> weights = load_safetensors("model.safetensors")
    >>> x = np.ones((16, 64), bfloat16)
    >>> cuswiglu.mlp(x, **weights.arguments, activation=weights.activation).shape
    (16, 64)
    """

    gate: npt.NDArray[Any]
    up: npt.NDArray[Any]
    down: npt.NDArray[Any]
    source: str
    activation: str = "silu"
    b_gate: npt.NDArray[Any] | None = None
    b_up: npt.NDArray[Any] | None = None
    b_down: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        gate, up, down = self.gate.shape, self.up.shape, self.down.shape
        if not (len(gate) == len(down) == 2 and gate == up and gate[1] == down[0]):
            raise ValueError(
                f"{self.source}: gate has shape {gate}, up {up} and down {down}; a gated MLP "
                "needs gate and up (K, N) and down (N, K_out): check that the checkpoint is "
                "complete and that the three tensors are of one MLP"
            )
        for name, columns in (("gate", gate[1]), ("up", up[1]), ("down", down[1])):
            bias = getattr(self, f"b_{name}")
            if bias is not None and bias.shape != (columns,):
                raise ValueError(
                    f"{self.source}: the bias of {name} has shape {bias.shape}, it needs "
                    f"({columns},), as {name} has columns: check that they are of one MLP"
                )

    @property
    def arguments(self) -> dict[str, npt.NDArray[Any] | None]:
        """Weights and biases as keyword arguments of `cuswiglu.mlp`."""
        return {
            "w_gate": self.gate,
            "w_up": self.up,
            "w_down": self.down,
            "b_gate": self.b_gate,
            "b_up": self.b_up,
            "b_down": self.b_down,
        }


class Checkpoint(ABC):
    """Opened checkpoint, from which the gated MLP of a layer can be loaded.

    Parameters
    ----------
    path : pathlib.Path
        The file, for messages.
    names : iterable of str
        Names of all tensors in the checkpoint.

    Attributes
    ----------
    activation : str
        Name of the activation of all its MLPs.

    Raises
    ------
    ValueError
        If no tensor is the gate of a gated MLP.
    """

    #: Names of the tensors in files of this kind.
    table: ClassVar[Sequence[Names]]
    activation: str

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        self.path = path
        self._names = frozenset(names)
        # Number of the layer -> prefix -> row of the table.
        self._found: dict[int, dict[str, Names]] = {}
        for row in self.table:
            pattern = row.gate_pattern
            for name in self._names:
                if match := pattern.search(name):
                    self._found.setdefault(int(match[2]), {}).setdefault(match[1], row)
        if not self._found:
            raise ValueError(f"path: {path} has no layer with a gated MLP: {self._instead()}")

    @property
    def layers(self) -> list[int]:
        """Numbers of the layers that have a gated MLP, ascending."""
        return sorted(self._found)

    def load(self, layer: int) -> MLPWeights:
        """Load the gated MLP of one layer.

        Parameters
        ----------
        layer : int
            One of `layers`.

        Returns
        -------
        MLPWeights
            The weights and the biases as bfloat16.

        Raises
        ------
        ValueError
            If the layer is not there, is incomplete, is more than a gated MLP, or has tensors that
            cannot be used.
        """
        prefix, row = self._choose(layer)
        names = row.weights(prefix, layer)
        if missing := [name for name in names if name not in self._names]:
            raise ValueError(
                f"layer: layer {layer} of {self.path} lacks {', '.join(missing)}; a gated MLP "
                f"needs {', '.join(names)}: get a complete checkpoint"
            )
        self._check_alone(prefix, row, layer)
        *gate_up, down = (self._read(name) for name in names)
        biases = row.biases(prefix, layer)
        *of_gate_up, b_down = (self._read(n) if n in self._names else None for n in biases)
        if row.fused:
            gate_up = self._halves(names[0], gate_up[0], down)
            (both,) = of_gate_up
            of_gate_up = [None, None]
            if both is not None:
                of_gate_up = [*self._halves(biases[0], both, down)]
        (gate, up), (b_gate, b_up) = gate_up, of_gate_up
        source = f"{self.path.name} layer {layer}"
        activation = self.activation
        return MLPWeights(gate.T, up.T, down.T, source, activation, b_gate, b_up, b_down)

    def _choose(self, layer: int) -> tuple[str, Names]:
        """Find the prefix and names of a layer's MLP: the language model's if there are several."""
        candidates = self._found.get(layer)
        if candidates is None:
            experts = self._experts(layer)
            what = f": it is a mixture of experts, with {experts}" if experts else ""
            raise ValueError(
                f"layer: {self.path} has no layer {layer} with a gated MLP{what}; it has "
                f"{_describe(self.layers)}: pass one of those"
            )
        spoken = [prefix for prefix in candidates if prefix in LANGUAGE_PREFIXES]
        chosen = spoken if len(spoken) == 1 else sorted(candidates)
        if len(chosen) > 1:
            gates = (candidates[prefix].weights(prefix, layer)[0] for prefix in chosen)
            raise ValueError(
                f"layer: layer {layer} of {self.path} is ambiguous, several tensors could be its "
                f"gate: {', '.join(gates)}; pass a file that holds only one of these models"
            )
        return chosen[0], candidates[chosen[0]]

    def _check_alone(self, prefix: str, row: Names, layer: int) -> None:
        """Refuse an MLP that has more tensors, which would be left out of the computation."""
        module = prefix + row.module.format(layer=layer)
        expected = {*row.weights(prefix, layer), *row.biases(prefix, layer)}
        expected |= {module + part for part in row.beside}
        others = [n for n in self._names if n.startswith(module) and n not in expected]
        others += self._experts(layer)
        if not others:
            return
        first = min(others)
        words = (words for pattern, words in OBSTACLES if pattern.search(first))
        raise ValueError(
            f"layer: layer {layer} of {self.path} "
            f"{next(words, 'has more in its MLP than gate, up and down')}: it holds {first}; "
            f"a gated MLP has {', '.join(row.weights(prefix, layer))}, their biases, and nothing "
            "else"
        )

    def _experts(self, layer: int) -> list[str]:
        """List the first tensor of a mixture of experts in a layer, or nothing."""
        found = (
            name
            for name in self._names
            if (match := EXPERTS.search(name)) and int(match[1]) == layer
        )
        return sorted(found)[:1]

    def _halves(
        self, name: str, both: npt.NDArray[Any], down: npt.NDArray[Any]
    ) -> list[npt.NDArray[Any]]:
        """Split an array that holds gate and up, or their biases, into two views."""
        rows = 2 * down.shape[-1]
        if both.ndim not in (1, 2) or len(both) != rows:
            raise ValueError(
                f"path: {name} in {self.path} has shape {both.shape}; to hold gate and up, it "
                f"needs {rows} rows, twice as many as down has columns: the MLP has no gate, or "
                "the checkpoint is incomplete"
            )
        return [both[: rows // 2], both[rows // 2 :]]

    def _instead(self) -> str:
        """Say what a checkpoint without a gated MLP holds, for a message."""
        experts = [name for name in self._names if EXPERTS.search(name)]
        if experts:
            return (
                f"it is a mixture of experts, which is not computed here; it holds {_some(experts)}"
            )
        examples = " or ".join(repr(row.example) for row in self.table)
        likely = [n for n in self._names if any(w in n for w in ("mlp", "ffn", "feed_forward"))]
        return (
            f"none of its tensors is named like {examples}; it holds "
            f"{_some(likely or self._names)}: pass the file of a language model, or add its names "
            "to the table in cuswiglu/models/_architectures.py"
        )

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
        Kind of file that is needed, for the message.

    Raises
    ------
    FileNotFoundError
        If nothing is there.
    ValueError
        If it is not a file.
    """
    if not path.exists():
        there = files_of(path.parent, path.suffix)
        raise FileNotFoundError(f"path: {path} does not exist; it should be {kind}{there}")
    if not path.is_file():
        raise ValueError(f"path: {path} is not a file; it should be {kind}")


def read_json(path: Path) -> Any:
    """Read a JSON file of a model.

    Parameters
    ----------
    path : pathlib.Path

    Returns
    -------
    object
        The parsed JSON.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is not JSON, nested too deep, or larger than `MAX_JSON_BYTES`.
    """
    if path.stat().st_size > MAX_JSON_BYTES:
        raise ValueError(f"it is larger than {MAX_JSON_BYTES} bytes")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def files_of(folder: Path, suffix: str) -> str:
    """Name the files with a suffix in a folder, for the end of a message.

    Parameters
    ----------
    folder : pathlib.Path
        Need not exist.
    suffix : str
        With its dot.

    Returns
    -------
    str
        Begins with a colon.
    """
    if not folder.is_dir():
        return f": there is no directory {folder} either"
    names = sorted(
        p.name for p in folder.iterdir() if suffix and p.suffix.lower() == suffix.lower()
    )
    if not names:
        return f": its directory holds no {suffix or 'such'} file"
    return f": its directory holds {_some(names, _FILES)}"


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


def _some(names: Collection[str], limit: int = _LISTED) -> str:
    shown = ", ".join(sorted(names)[:limit]) or "none at all"
    more = len(names) - limit
    return f"{shown} and {more} more" if more > 0 else shown
