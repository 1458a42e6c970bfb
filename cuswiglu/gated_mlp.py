"""GatedMLP: weights held, plans kept."""

from __future__ import annotations

import os
from typing import Any

from . import arrays, functional, problem, select
from .models import MLPWeights, load_gguf, load_safetensors


class GatedMLP:
    """A gated MLP with its weights: call it with activations.

    Parameters
    ----------
    w_gate, w_up : (K, N) array
    w_down : (N, K_out) array
        BF16, NumPy or CuPy, all on one device, each contiguous along either dimension. They are
        held, not copied.
    variant : str
        As in `cuswiglu.swiglu`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.

    Examples
    --------
    >>> mlp = GatedMLP.from_safetensors("model.safetensors", layer=3)  # doctest: +SKIP
    >>> y = mlp(x)  # doctest: +SKIP
    """

    def __init__(self, w_gate: Any, w_up: Any, w_down: Any, *, variant: str = "auto") -> None:
        gate, up, down = problem.view_all(None, w_gate=w_gate, w_up=w_up, w_down=w_down)
        problem.check_weights(gate, up, down)
        select.check_name(variant)
        self._weights = (gate, up, down)
        self.variant = variant

    @property
    def k(self) -> int:
        """Hidden size: columns of x."""
        return self._weights[0].shape[0]

    @property
    def n(self) -> int:
        """Intermediate size."""
        return self._weights[0].shape[1]

    @property
    def k_out(self) -> int:
        """Columns of the result."""
        return self._weights[2].shape[1]

    @property
    def w_gate(self) -> Any:
        return self._weights[0].array

    @property
    def w_up(self) -> Any:
        return self._weights[1].array

    @property
    def w_down(self) -> Any:
        return self._weights[2].array

    def __call__(self, x: Any, *, out: Any = None, stream: Any = None) -> Any:
        """The MLP of x, as `cuswiglu.mlp`.

        Parameters
        ----------
        x : (..., K) array
        out : (..., K_out) array, optional
        stream : optional

        Returns
        -------
        (..., K_out) array
        """
        return functional.run_mlp(
            arrays.view("x", x, stream), self._weights, out, self.variant, stream
        )

    def __repr__(self) -> str:
        gate = self._weights[0]
        layout = {"k": "K-major", "n": "N-major"}[str(problem.weight_major(gate))]
        return (
            f"GatedMLP(K={self.k}, N={self.n}, K_out={self.k_out}, {layout}, on {gate.device}, "
            f"variant={self.variant!r})"
        )

    @classmethod
    def from_safetensors(
        cls,
        path: str | os.PathLike[str],
        layer: int = 0,
        *,
        device: str = "cuda",
        variant: str = "auto",
    ) -> GatedMLP:
        """The MLP of one layer of a Hugging Face Llama, Qwen or Mistral checkpoint.

        Parameters
        ----------
        path : path
            A .safetensors file, a sharded index (.safetensors.index.json), or their folder.
        layer : int
        device : "cuda" or "cpu"
            Where the weights go: the current CUDA device, or host memory.

        Raises
        ------
        FileNotFoundError, TypeError, ValueError
            Naming what is there when the file, the layer or a tensor is not.
        """
        _check_device(device)
        return cls._from_weights(load_safetensors(path, layer), device, variant)

    @classmethod
    def from_gguf(
        cls,
        path: str | os.PathLike[str],
        layer: int = 0,
        *,
        device: str = "cuda",
        variant: str = "auto",
    ) -> GatedMLP:
        """The MLP of one layer of a GGUF file, dequantised to BF16; as `from_safetensors`."""
        _check_device(device)
        return cls._from_weights(load_gguf(path, layer), device, variant)

    @classmethod
    def _from_weights(cls, weights: MLPWeights, device: str, variant: str) -> GatedMLP:
        held = [weights.gate, weights.up, weights.down]
        if device == "cuda":
            held = [_to_device(array) for array in held]
        return cls(*held, variant=variant)


def _check_device(device: str) -> None:
    if device not in ("cuda", "cpu"):
        raise ValueError(f"device must be 'cuda' or 'cpu', got {device!r}")


def _to_device(array: Any) -> Any:
    """Copy to the current CUDA device, keeping the layout of the transposed view."""
    return arrays.cupy_module().asarray(array.T).T
