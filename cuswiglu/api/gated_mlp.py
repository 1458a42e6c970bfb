"""GatedMLP: a layer that holds checked weights and the calls prepared for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import arrays, problem
from ..common.cache import Cache
from ..problem import WeightArrays
from ..problem.activations import ClampedSwiGLU
from ..runtime.signature import array_signature
from ..selection import select
from . import dispatch
from .cuda_graph import CapturedMLP
from .dispatch import CheckedWeights

if TYPE_CHECKING:
    from ..models import MLPWeights
    from .display import LayerSummary

CACHED_CALLS = 64  # of one layer: M, the layout of x, and of out where it is given


class GatedMLP:
    """Gated MLP with its weights: call it with activations.

    Parameters
    ----------
    w_gate, w_up : (K, N) array
        Or `PackedWeights` for `w_gate`, with ``w_up=None``.
    w_down : (N, K_out) array
        BF16 or FP16, all alike, as in `cuswiglu.asarray`, all on one device, each contiguous along
        either dimension. They are held, not copied. The current CuPy stream waits for other
        libraries' work on them; calls on other streams do not.
    b_gate, b_up : (N,) array, optional
    b_down : (K_out,) array, optional
        Contiguous; held as the weights are.
    activation, variant
        As in `cuswiglu.swiglu`.
    deterministic : "batch", optional
        A token's result has the same bits whatever M it comes with: one kernel family, cut in one
        way, on a Hopper GPU; an error where that cannot be. Without it, the bits are the same for
        the same M.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.

    Notes
    -----
    After its first call the weights are taken to stay as they are: they are loaded while work ahead
    on the stream still runs. Before a call that is to see them written in place, synchronise.

    Examples
    --------
    >>> import numpy as np
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> rng = np.random.default_rng(0)
    >>> gate_proj, up_proj = rng.standard_normal((2, 192, 64)).astype(bfloat16)
    >>> down_proj = rng.standard_normal((64, 192)).astype(bfloat16)
    >>> layer = cuswiglu.GatedMLP(gate_proj.T, up_proj.T, down_proj.T)
    >>> layer.k, layer.n, layer.k_out
    (64, 192, 64)
    >>> layer(np.ones((16, 64), bfloat16)).shape
    (16, 64)
    """

    def __init__(
        self,
        w_gate: Any,
        w_up: Any = None,
        w_down: Any = None,
        *,
        b_gate: Any = None,
        b_up: Any = None,
        b_down: Any = None,
        activation: str | ClampedSwiGLU = "silu",
        variant: str = "auto",
        deterministic: str | None = None,
    ) -> None:
        if w_down is None:
            arrays.view("w_down", w_down)  # which says what it must be
        self._given = WeightArrays(w_gate, w_up, w_down, b_gate, b_up, b_down)
        self._calls: dispatch.Calls = Cache(CACHED_CALLS)
        self._weights = CheckedWeights(
            self._given, activation, _rule(variant, deterministic), self._calls, constant=True
        )
        self._addresses, self._operands = self._weights.addresses, self._weights.operands
        self.activation = activation
        self.variant = variant
        self.deterministic = deterministic

    @property
    def k(self) -> int:
        """Hidden size: columns of x."""
        return self._operands.k

    @property
    def n(self) -> int:
        """Intermediate size."""
        return self._operands.n

    @property
    def k_out(self) -> int:
        """Columns of the result."""
        return self._operands.columns

    @property
    def w_gate(self) -> Any:
        """Weights of gate, as they were given; `PackedWeights` of up too."""
        return self._given.w_gate

    @property
    def w_up(self) -> Any:
        """Weights of up, as they were given; None beside packed weights."""
        return self._given.w_up

    @property
    def w_down(self) -> Any:
        """Weights of the down projection, as they were given."""
        return self._given.w_down

    @property
    def b_gate(self) -> Any:
        """Bias of gate, as it was given, or None."""
        return self._given.b_gate

    @property
    def b_up(self) -> Any:
        """Bias of up, as it was given, or None."""
        return self._given.b_up

    @property
    def b_down(self) -> Any:
        """Bias of the down projection, as it was given, or None."""
        return self._given.b_down

    def __call__(
        self, x: Any, *, out: Any = None, stream: Any = None, like: str | None = None
    ) -> Any:
        """Compute the MLP of x, as `cuswiglu.mlp`.

        Parameters
        ----------
        x : (..., K) array
            Of the weights' dtype, as `out`.
        out : (..., K_out) array, optional
        stream, like
            As in `cuswiglu.swiglu`.

        Returns
        -------
        (..., K_out) array

        Examples
        --------
        >>> import numpy as np
        >>> from ml_dtypes import bfloat16
        >>> import cuswiglu
        >>> weights = [np.ones(shape, bfloat16) for shape in ((64, 192), (64, 192), (192, 64))]
        >>> layer = cuswiglu.GatedMLP(*weights)
        >>> layer(np.ones((2, 16, 64), bfloat16)).shape
        (2, 16, 64)
        """
        if like is None:  # the fast path: for few tokens, host time counts
            signature = array_signature(x) if out is None else self._weights.signature(x, out)
            ready = None if signature is None else self._calls.get(signature)
            if ready is not None:
                return ready.call(ready, x, self._addresses, self._operands, out, stream)
        return dispatch.call_with(self._weights, x, out, stream, like)

    def capture(self, x: Any) -> CapturedMLP:
        """Capture the call for arrays like x in a CUDA graph, to be replayed at less cost.

        Parameters
        ----------
        x : (..., K) array
            On the weights' CUDA device. It is copied, not held.

        Returns
        -------
        CapturedMLP
            With a static input `x` and result `y` of its own.

        Raises
        ------
        TypeError, ValueError
            As a call; and if x lives on the CPU, or has no tokens.

        Notes
        -----
        It synchronises: the call runs once, on a stream of its own, before it is captured.

        Examples
        --------
        On a GPU; see `CapturedMLP` for what replays do.

        >>> import cupy
        >>> from ml_dtypes import bfloat16
        >>> import cuswiglu
        >>> shapes = (64, 192), (64, 192), (192, 64)
        >>> layer = cuswiglu.GatedMLP(*(cupy.empty(shape, bfloat16) for shape in shapes))
        >>> step = layer.capture(cupy.empty((4, 64), bfloat16))
        >>> step.x.shape, step.y.shape
        ((4, 64), (4, 64))
        """
        view = arrays.view("x", x)
        problem.check_x(view, self._operands.gate_up[0])
        return CapturedMLP(self, view, self.k_out)

    def __repr__(self) -> str:
        """Say sizes, layout, device and the kernels in use in a line."""
        return str(self._summary())

    def _repr_html_(self) -> str:
        return self._summary().html()

    def _summary(self) -> LayerSummary:
        from .display import LayerSummary

        chains = [ready.chain for ready in self._calls.values()]
        return LayerSummary(self.variant, self._weights.activation, self._operands, chains)

    @classmethod
    def from_safetensors(
        cls,
        path: str | os.PathLike[str],
        layer: int = 0,
        *,
        device: str = "cuda",
        variant: str = "auto",
        deterministic: str | None = None,
    ) -> GatedMLP:
        """Load the MLP of one layer of a Llama, Mistral, Qwen, Gemma or Phi-3 checkpoint.

        As Hugging Face has it, with the activation and the biases that the model has.

        Parameters
        ----------
        path : path
            A .safetensors file, a sharded index (.safetensors.index.json), or their folder.
        layer : int
        device : "cuda" or "cpu"
            Where the weights go: the current CUDA device, or host memory.
        variant, deterministic
            As in `GatedMLP`.

        Raises
        ------
        FileNotFoundError, TypeError, ValueError
            Naming what is there when the file, the layer or a tensor is not; and if the model uses
            an activation that is not computed, or its MLP is more than three weights and biases.

        Warns
        -----
        UserWarning
            If there is no config.json that says which activation the model uses.

        Examples
        --------
        >>> import cuswiglu
        >>> layer = cuswiglu.GatedMLP.from_safetensors("model.safetensors", layer=1, device="cpu")
        >>> layer.w_gate.shape, layer.activation
        ((64, 192), 'silu')
        """
        from ..models import load_safetensors

        return cls._load(load_safetensors, path, layer, device, variant, deterministic)

    @classmethod
    def from_gguf(
        cls,
        path: str | os.PathLike[str],
        layer: int = 0,
        *,
        device: str = "cuda",
        variant: str = "auto",
        deterministic: str | None = None,
    ) -> GatedMLP:
        """Load the MLP of one layer of a GGUF file, dequantised to BF16; as `from_safetensors`.

        Parameters
        ----------
        path : path
            A .gguf file.
        layer, device, variant, deterministic
            As in `from_safetensors`.

        Raises
        ------
        FileNotFoundError, TypeError, ValueError
            As `from_safetensors`.

        Examples
        --------
        >>> import cuswiglu
        >>> layer = cuswiglu.GatedMLP.from_gguf("model.gguf", layer=1, device="cpu")
        >>> layer.w_gate.shape, layer.w_gate.dtype.name
        ((64, 192), 'bfloat16')
        """
        from ..models import load_gguf

        return cls._load(load_gguf, path, layer, device, variant, deterministic)

    @classmethod
    def _load(
        cls,
        load: Callable[[str | os.PathLike[str], int], MLPWeights],
        path: str | os.PathLike[str],
        layer: int,
        device: str,
        variant: str,
        deterministic: str | None,
    ) -> GatedMLP:
        if device not in ("cuda", "cpu"):
            raise ValueError(f"device must be 'cuda' or 'cpu', got {device!r}")
        weights = load(path, layer)
        held = weights.arguments
        if device == "cuda":
            held = {name: _to_device(array) for name, array in held.items() if array is not None}
        return cls(
            **held,
            activation=weights.activation,
            variant=variant,
            deterministic=deterministic,
        )


def _rule(variant: str, deterministic: str | None) -> str:
    """Name that kernels are chosen under: `variant`, or `select.BATCH`."""
    select.check_name(variant)
    if deterministic is None:
        return variant
    if deterministic != "batch":
        raise ValueError(f"deterministic must be None or 'batch', got {deterministic!r}")
    if variant != "auto":
        raise ValueError(
            f"deterministic='batch' chooses the kernels itself: variant must be 'auto', got "
            f"{variant!r}"
        )
    return select.BATCH


def _to_device(array: Any) -> Any:
    """Copy to the current CUDA device, keeping the layout of the transposed view."""
    return arrays.cupy_module().asarray(array.T).T
