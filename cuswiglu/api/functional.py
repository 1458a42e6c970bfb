"""The two functions: swiglu and mlp."""

from __future__ import annotations

from typing import Any

from .. import arrays
from ..problem.activations import ClampedSwiGLU
from . import dispatch


def swiglu(
    x: Any,
    w_gate: Any,
    w_up: Any = None,
    *,
    b_gate: Any = None,
    b_up: Any = None,
    activation: str | ClampedSwiGLU = "silu",
    out: Any = None,
    variant: str = "auto",
    stream: Any = None,
    like: str | None = None,
) -> Any:
    """Compute SiLU(x @ w_gate + b_gate) * (x @ w_up + b_up), or another activation, fused.

    Parameters
    ----------
    x : (..., K) array
        BF16 or FP16, and so all arrays of the call; contiguous along K; the leading dimensions
        (tokens, M in all) are walked by one stride. NumPy (``ml_dtypes.bfloat16`` and
        ``numpy.float16``), CuPy, or another library's, as in `cuswiglu.asarray`.
    w_gate, w_up : (K, N) array
        Contiguous along K (a checkpoint's ``weight.T``, a view) or along N. Or `w_gate` is
        `PackedWeights`, which hold both, and `w_up` is left out.
    b_gate, b_up : (N,) array, optional
        Contiguous; beside packed weights too, one number for each column of a weight.
    activation : str or ClampedSwiGLU
        Of gate: "silu", "gelu" (by the error function), "gelu_tanh" (its approximation), "relu",
        "sigmoid" or "identity", times up. Or `ClampedSwiGLU`, of both.
    out : (..., N) array, optional
        Where to write; must not overlap an input.
    variant : str
        "auto", "cublas" (the portable path), a family ("dual", "sync"; "interleave" for packed
        weights), or the name of one of `cuswiglu.variants()`.
    stream : cupy.cuda.Stream, int, or object with ``__cuda_stream__``, optional
        Where work goes; the current CuPy stream of x's device by default. It waits for the work of
        other libraries on their arrays.
    like : "input", optional
        Give a new result as an array of x's library, whose current stream waits for it. By default
        it is CuPy's, or NumPy's on the CPU.

    Returns
    -------
    (..., N) array
        `out`, or a new one, of x's dtype: products, sums and activation are FP32, rounded once.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, before anything is launched or written.

    Notes
    -----
    Nothing synchronises. The same inputs, shapes and variant give the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((2, 16, 64)).astype(bfloat16)
    >>> gate_proj, up_proj = rng.standard_normal((2, 192, 64)).astype(bfloat16)
    >>> hidden = cuswiglu.swiglu(x, gate_proj.T, up_proj.T)
    >>> hidden.shape, hidden.dtype.name
    ((2, 16, 192), 'bfloat16')

    Another activation, a bias, and a result that is written in place:

    >>> bias = np.zeros(192, bfloat16)
    >>> out = np.empty((2, 16, 192), bfloat16)
    >>> found = cuswiglu.swiglu(
    ...     x, gate_proj.T, up_proj.T, b_gate=bias, activation="gelu_tanh", out=out
    ... )
    >>> found is out
    True
    """
    given = w_gate, w_up, None, b_gate, b_up, None
    return dispatch.call(x, given, out, activation, variant, stream, like)


def mlp(
    x: Any,
    w_gate: Any,
    w_up: Any = None,
    w_down: Any = None,
    *,
    b_gate: Any = None,
    b_up: Any = None,
    b_down: Any = None,
    activation: str | ClampedSwiGLU = "silu",
    out: Any = None,
    variant: str = "auto",
    stream: Any = None,
    like: str | None = None,
) -> Any:
    """Compute the gated MLP: swiglu(x, w_gate, w_up) @ w_down + b_down.

    Parameters
    ----------
    x : (..., K) array
    w_gate, w_up : (K, N) array
    w_down : (N, K_out) array
        As in `swiglu`: each contiguous along either dimension.
    b_gate, b_up : (N,) array, optional
    b_down : (K_out,) array, optional
        As in `swiglu`.
    out : (..., K_out) array, optional
    activation, variant, stream, like
        As in `swiglu`; `variant` chooses the kernel of gate and up.

    Returns
    -------
    (..., K_out) array
        Of x's dtype. The (M, N) intermediate is rounded to it once; both products accumulate in
        FP32.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, before anything is launched or written.

    Examples
    --------
    >>> import numpy as np
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((16, 64)).astype(bfloat16)
    >>> gate_proj, up_proj = rng.standard_normal((2, 192, 64)).astype(bfloat16)
    >>> down_proj = rng.standard_normal((64, 192)).astype(bfloat16)
    >>> y = cuswiglu.mlp(x, gate_proj.T, up_proj.T, down_proj.T)
    >>> y.shape
    (16, 64)
    """
    if w_down is None:
        arrays.view("w_down", w_down)  # which says what it must be
    given = w_gate, w_up, w_down, b_gate, b_up, b_down
    return dispatch.call(x, given, out, activation, variant, stream, like)
