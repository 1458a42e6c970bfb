"""Activations: what is done to gate and up in FP32, once they are multiplied out.

All but the clamped SwiGLU are y = act(gate) * up. To add one, give it a line in `NAMED`, and lines
in backends/cublas.py and jax/plain.py. The kernels compute all that are x * sigmoid(a x + b x^3)
from coefficients, the sigmoid alone, and max(x, a); what is not, as GELU, needs code of its own
there.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

Array = Any


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of what a kernel computes: G(gate) * (U(up) + up_constant).

    G(x) is x * sigmoid(linear * x + cubic * x^3), x at most `limit`, or the sigmoid alone; U is up
    between -limit and limit. GELU has a G of its own; so has ReLU, of x at least `limit`, which is
    the identity where that is -inf.
    """

    linear: float = 1.0
    cubic: float = 0.0
    limit: float = math.inf
    up_constant: float = 0.0

    def for_kernels(self) -> dict[str, float]:
        """Name them as the kernels' arguments, for which the sigmoid is 1 / (1 + 2^x)."""
        linear = max(-_FP32_LARGEST, min(-LOG2_E * self.linear, _FP32_LARGEST))
        cubic = -LOG2_E * self.cubic
        return dataclasses.asdict(self) | {"linear": linear, "cubic": cubic}


@dataclass(frozen=True)
class Named:
    """An activation that is asked for by its name.

    Attributes
    ----------
    name : str
    code : int
        How kernels compute it: 1 and 3 are GELU's and ReLU's own ways, 4 is the sigmoid of the
        coefficients alone, others are from the coefficients; 0 is SiLU's, for which, without
        biases, they have entries of its own.
    coefficients : Coefficients
    parameters : mapping of str to float
        Numbers that it takes, by name: none.
    gate : function of xp, gate
        act(gate) in gate's precision; xp is numpy or cupy, as the array is.
    """

    name: str
    code: int
    coefficients: Coefficients = field(compare=False, repr=False)
    gate: Callable[[Any, Array], Array] = field(compare=False, repr=False)
    parameters: ClassVar[Mapping[str, float]] = {}

    def __call__(self, xp: Any, gate: Array, up: Array) -> Array:
        """Compute act(gate) * up, in their precision."""
        return self.gate(xp, gate) * up

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ClampedSwiGLU:
    """The SwiGLU of gpt-oss: g * sigmoid(alpha * g) * (u + 1), g and u clamped first.

    g = min(gate, limit), and u is up between -limit and limit.

    Parameters
    ----------
    alpha : float
        Finite in FP32.
    limit : float
        More than 0 in FP32; ``math.inf`` clamps nothing.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.

    Examples
    --------
    >>> import numpy as np
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> x, weight = np.ones((4, 64), bfloat16), np.ones((64, 192), bfloat16)
    >>> cuswiglu.swiglu(x, weight, weight, activation=cuswiglu.ClampedSwiGLU(limit=2.0)).max()
    5.8125
    """

    alpha: float = 1.702
    limit: float = 7.0
    name: ClassVar[str] = "clamped"
    code: ClassVar[int] = 2

    def __post_init__(self) -> None:
        for name in ("alpha", "limit"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if not abs(self.alpha) <= _FP32_LARGEST:
            raise ValueError(f"alpha must be finite in FP32, got {self.alpha}")
        if not self.limit > _FP32_NEXT_TO_NOTHING or _FP32_LARGEST < self.limit < math.inf:
            raise ValueError(
                f"limit must be more than 0 and finite in FP32, or math.inf, got {self.limit}"
            )

    @property
    def parameters(self) -> Mapping[str, float]:
        """Numbers that it takes, by name."""
        return {"alpha": self.alpha, "limit": self.limit}

    @property
    def coefficients(self) -> Coefficients:
        """Coefficients that the kernels compute it from."""
        return Coefficients(linear=self.alpha, limit=self.limit, up_constant=1.0)

    def __call__(self, xp: Any, gate: Array, up: Array) -> Array:
        """Compute it of gate and up, in their precision; xp is numpy or cupy, as the arrays are."""
        gate = xp.minimum(gate, self.limit)
        up = xp.clip(up, -self.limit, self.limit)
        return gate / (1 + xp.exp(-self.alpha * gate)) * (up + 1)


Activation = Named | ClampedSwiGLU

_FP32_LARGEST = (2 - 2**-23) * 2.0**127
_FP32_NEXT_TO_NOTHING = 2.0**-150  # and less is rounded to 0
#: tanh's argument over x + `TANH_CUBE` x^3.
TANH_SCALE, TANH_CUBE = math.sqrt(2 / math.pi), 0.044715
LOG2_E = math.log2(math.e)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number that fits in FP32, got {value}") from None


def _silu(xp: Any, gate: Array) -> Array:
    return gate / (1 + xp.exp(-gate))


def _gelu(xp: Any, gate: Array) -> Array:
    """Gate times the normal distribution's integral up to it, small ones as precise as others."""
    scaled = gate * -math.sqrt(0.5)
    if xp.__name__ == "numpy":  # which has no erfc
        halves = xp.vectorize(math.erfc, otypes=[gate.dtype])(scaled)
    else:
        from cupyx.scipy import special

        halves = special.erfc(scaled)
    return gate * (0.5 * halves)


def _gelu_tanh(xp: Any, gate: Array) -> Array:
    """(1 + tanh(z)) / 2 is the sigmoid of 2z."""
    inner = gate + TANH_CUBE * gate * gate * gate
    return gate / (1 + xp.exp(-2 * TANH_SCALE * inner))


def _relu(xp: Any, gate: Array) -> Array:
    return xp.maximum(gate, 0)


def _sigmoid(xp: Any, gate: Array) -> Array:
    return 1 / (1 + xp.exp(-gate))


def _identity(xp: Any, gate: Array) -> Array:
    return gate


_TANH = Coefficients(2 * TANH_SCALE, cubic=2 * TANH_SCALE * TANH_CUBE)
SILU = Named("silu", 0, Coefficients(), _silu)
NAMED = {
    one.name: one
    for one in (
        SILU,
        Named("gelu", 1, Coefficients(), _gelu),
        Named("gelu_tanh", 2, _TANH, _gelu_tanh),
        Named("relu", 3, Coefficients(limit=0.0), _relu),
        Named("sigmoid", 4, Coefficients(), _sigmoid),
        Named("identity", 3, Coefficients(limit=-math.inf), _identity),
    )
}


def find(activation: Any) -> Activation:
    """Find the activation that the argument `activation` of a call means.

    Raises
    ------
    TypeError, ValueError
        Saying what there is.
    """
    if isinstance(activation, ClampedSwiGLU):
        return activation
    choices = f"{', '.join(map(repr, NAMED))} or a cuswiglu.ClampedSwiGLU"
    if not isinstance(activation, str):
        raise TypeError(f"activation must be {choices}, got {type(activation).__name__}")
    if activation not in NAMED:
        raise ValueError(f"activation must be {choices}, got {activation!r}")
    return NAMED[activation]
