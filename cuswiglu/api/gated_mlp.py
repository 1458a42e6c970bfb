"""GatedMLP: weights held, plans kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .. import arrays, problem
from ..arrays import convert
from ..common.cache import Cache
from ..problem import activations, biases
from ..problem.activations import ClampedSwiGLU
from ..runtime import prepared
from ..runtime.prepared import PreparedCall
from ..selection import select
from . import dispatch

if TYPE_CHECKING:
    from ..models import MLPWeights
    from .cuda_graph import CapturedMLP
    from .display import Description

CACHED_CALLS = 64  # of one layer: M, the layout of x, and of out where it is given


class GatedMLP:
    """A gated MLP with its weights: call it with activations.

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
        self._gate_up = problem.gate_up(w_gate, w_up, None)
        self._down = arrays.view("w_down", w_down)
        problem.check_gate_up(self._gate_up, self._down)
        self._biases = biases.view(None, b_gate, b_up, b_down)
        problem.check_biases(self._biases, self._gate_up, self._down)
        select.check_name(variant)
        self._activation = activations.find(activation)
        self._given = (w_gate, w_up, w_down)
        self._given_biases = (b_gate, b_up, b_down)
        self._addresses = prepared.addresses_of(self._gate_up, self._down, self._biases)
        self._projection = dispatch.projection(self._down, self._biases)
        self._ready: Cache[prepared.Key, PreparedCall] = Cache(CACHED_CALLS)
        self._rule = _rule(variant, deterministic)
        self.activation = activation
        self.variant = variant
        self.deterministic = deterministic

    @property
    def k(self) -> int:
        """Hidden size: columns of x."""
        return self._gate_up[0].shape[0]

    @property
    def n(self) -> int:
        """Intermediate size."""
        return problem.intermediate(self._gate_up)

    @property
    def k_out(self) -> int:
        """Columns of the result."""
        return self._down.shape[1]

    @property
    def w_gate(self) -> Any:
        """As it was given."""
        return self._given[0]

    @property
    def w_up(self) -> Any:
        """As it was given; None beside packed weights."""
        return self._given[1]

    @property
    def w_down(self) -> Any:
        """As it was given."""
        return self._given[2]

    @property
    def b_gate(self) -> Any:
        """As it was given, or None."""
        return self._given_biases[0]

    @property
    def b_up(self) -> Any:
        """As it was given, or None."""
        return self._given_biases[1]

    @property
    def b_down(self) -> Any:
        """As it was given, or None."""
        return self._given_biases[2]

    def __call__(
        self, x: Any, *, out: Any = None, stream: Any = None, like: str | None = None
    ) -> Any:
        """The MLP of x, as `cuswiglu.mlp`.

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
        if out is None and like is None:  # the quick way, which few tokens are glad of
            kind = prepared.kind(x)
            ready = None if kind is None else self._ready.get(kind)
            if ready is not None:
                return ready.call(ready, x, self._addresses, self._projection, None, stream)
        return self._call(x, out, stream, like)

    def _call(self, x: Any, out: Any, stream: Any, like: str | None) -> Any:
        """A call of any kind, the first of its kind too."""
        taken, target, from_dlpack = x, out, None
        key = _key(x, out)
        if key is None or like is not None:
            from_dlpack = convert.exporter_of(like, x)
            taken, target = (
                arrays.import_array("x", x, stream),
                arrays.import_array("out", out, stream),
            )
            key = _key(taken, target)
        ready = None if key is None else self._ready.get(key)
        if ready is not None:
            result = ready.call(ready, taken, self._addresses, self._projection, target, stream)
        else:
            result = dispatch.first_call(
                arrays.view("x", taken),
                self._gate_up,
                self._down,
                self._biases,
                self._activation,
                target,
                self._rule,
                stream,
                key,
                self._ready,
            )
            # The weights are there, and stay.
            for made in self._ready.values():
                made.load_weights_ahead()
        if out is not None:
            return out
        return result if from_dlpack is None else convert.export(result, from_dlpack, stream)

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
        from .cuda_graph import CapturedMLP

        view = arrays.view("x", x)
        problem.check_x(view, self._gate_up[0])
        return CapturedMLP(self, view)

    def __repr__(self) -> str:
        return str(self._describe())

    def _repr_html_(self) -> str:
        return self._describe().html()

    def _describe(self) -> Description:
        from .display import Description

        plans = [ready.plans for ready in self._ready.values()]
        return Description(
            self.variant, self._activation, self._gate_up, self._down, self._biases, plans
        )

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
        """The MLP of one layer of a Hugging Face Llama, Mistral, Qwen, Gemma or Phi-3 checkpoint.

        With the activation and the biases that the model has.

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

        _check_device(device)
        return cls._from_weights(load_safetensors(path, layer), device, variant, deterministic)

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
        """The MLP of one layer of a GGUF file, dequantised to BF16; as `from_safetensors`.

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

        _check_device(device)
        return cls._from_weights(load_gguf(path, layer), device, variant, deterministic)

    @classmethod
    def _from_weights(
        cls, weights: MLPWeights, device: str, variant: str, deterministic: str | None
    ) -> GatedMLP:
        held = weights.arguments
        if device == "cuda":
            held = {name: _to_device(array) for name, array in held.items() if array is not None}
        return cls(
            **held,
            activation=weights.activation,
            variant=variant,
            deterministic=deterministic,
        )


def _key(x: Any, out: Any) -> prepared.Kind | prepared.Key | None:
    """What a call has in common with others like it."""
    return prepared.kind(x) if out is None else prepared.key("", "", x, out)


def _rule(variant: str, deterministic: str | None) -> str:
    """What plans are asked for."""
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


def _check_device(device: str) -> None:
    if device not in ("cuda", "cpu"):
        raise ValueError(f"device must be 'cuda' or 'cpu', got {device!r}")


def _to_device(array: Any) -> Any:
    """Copy to the current CUDA device, keeping the layout of the transposed view."""
    return arrays.cupy_module().asarray(array.T).T
