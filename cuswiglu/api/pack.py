"""Packed weights: gate and up in one matrix, for the interleave family of kernels."""

from __future__ import annotations

from typing import Any

from .. import arrays, problem
from ..problem import PackedWeights


def pack(w_gate: Any, w_up: Any, *, granularity: int = 8, stream: Any = None) -> PackedWeights:
    """Copy gate and up into one matrix, by turns of `granularity` columns.

    Parameters
    ----------
    w_gate, w_up : (K, N) array
        BF16 or FP16, as in `cuswiglu.swiglu`, each contiguous along either dimension.
    granularity : 8 or 1
        N must be a multiple of it.
    stream : optional
        As in `cuswiglu.swiglu`.

    Returns
    -------
    PackedWeights
        On the weights' device; exact, and reversible by `PackedWeights.unpack`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.

    Examples
    --------
    >>> import numpy as np
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> gate_proj, up_proj = np.ones((2, 192, 64), bfloat16)
    >>> packed = cuswiglu.pack(gate_proj.T, up_proj.T)
    >>> packed
    PackedWeights(K=64, N=192, granularity=8)
    >>> cuswiglu.swiglu(np.ones((16, 64), bfloat16), packed).shape
    (16, 192)
    """
    problem.check_granularity(granularity)
    gate, up = problem.view_all(stream, w_gate=w_gate, w_up=w_up)
    problem.check_weights(gate, up)
    k, n = gate.shape
    if n % granularity:
        raise ValueError(
            f"w_gate must have a multiple of {granularity} columns to be packed by turns of "
            f"{granularity}, got {n}: pass granularity=1"
        )
    with arrays.on_stream(gate.device, stream):
        packed = arrays.empty((2 * n, k), gate.device, gate.dtype)
        for half, weight in zip(problem.split(packed, granularity), (gate, up), strict=True):
            half[...] = weight.array.T.reshape(half.shape)
    return PackedWeights(packed, granularity)
