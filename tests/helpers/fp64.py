"""The operation in FP64, of NumPy and JAX arrays, and what may separate a result from it."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

import cuswiglu

_erfc = np.vectorize(math.erfc, otypes=[float])


def silu(x):
    return x / (1 + np.exp(-x))


def clamped(alpha, limit):
    """gpt-oss's activation, of gate and up."""

    def activation(gate, up):
        gate = np.where(gate > limit, limit, gate)
        up = np.where(np.abs(up) > limit, np.copysign(limit, up), up)
        return gate * (1 / (1 + np.exp(-alpha * gate))) * (up + 1)

    return activation


#: What `activation=` may be -> y of gate and up, as papers and configurations define it.
ACTIVATIONS = {
    "silu": lambda gate, up: silu(gate) * up,
    "gelu": lambda gate, up: gate / 2 * _erfc(-gate / np.sqrt(2)) * up,  # 1 + erf(x) is erfc(-x)
    "gelu_tanh": lambda gate, up: gate
    / 2
    * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
    * up,
    "relu": lambda gate, up: np.where(gate < 0, 0, gate) * up,
    "sigmoid": lambda gate, up: up / (1 + np.exp(-gate)),
    "identity": lambda gate, up: gate * up,
    cuswiglu.ClampedSwiGLU(): clamped(1.702, 7),
    cuswiglu.ClampedSwiGLU(0.5, 1): clamped(0.5, 1),
    cuswiglu.ClampedSwiGLU(limit=math.inf): clamped(1.702, np.inf),
}


def swiglu(x, gate, up, b_gate=None, b_up=None, activation="silu"):
    """SiLU(x gate) * (x up), or as is asked for, nothing rounded."""
    return ACTIVATIONS[activation](matmul(x, gate, b_gate), matmul(x, up, b_up))


def matmul(x, weight, bias=None):
    product = _exact(x) @ _exact(weight)
    return product if bias is None else product + _exact(bias)


def _exact(array):
    return np.asarray(array).astype(np.float64)


def mlp(x, gate, up, down, b_gate=None, b_up=None, b_down=None, activation="silu"):
    """The gated MLP, its intermediate rounded."""
    hidden = swiglu(x, gate, up, b_gate, b_up, activation).astype(x.dtype)
    return matmul(hidden, down, b_down)


def rounded(values):
    return values.astype(ml_dtypes.bfloat16)


def assert_close(found, expected):
    """Half an ulp (2^-8 relative at most, of FP16 2^-11), and FP32 accumulation near zero."""
    found = np.asarray(found)
    half = 2**-11 if found.dtype == np.float16 else 2**-8
    found = found.astype(np.float64)
    assert found.shape == expected.shape
    assert np.isfinite(found).all(), "an element was not written"
    scale = np.sqrt(np.mean(expected**2))
    excess = np.abs(found - expected) - (half * np.abs(expected) + 1e-5 * scale)
    assert excess.max() <= 0, f"off by {excess.max():.3g} beyond the tolerance"


def share_nearest(found, expected):
    """Share of elements that are the BF16 number nearest to the FP64 value."""
    return float(np.mean(np.asarray(found) == rounded(expected)))
