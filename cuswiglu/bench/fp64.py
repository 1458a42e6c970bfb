"""How far a contender's result is from FP64, on sampled rows; for NumPy and CuPy arrays alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..problem.activations import NAMED, SILU, ClampedSwiGLU, find

SAMPLED_ROWS = 256
#: Plain FP64 differs from every right contender by BF16 roundings, 2^-9 each: more is wrong.
MAX_RELATIVE_ERROR = 2**-6
#: What a contender may compute in SiLU's place -> as calls ask for it.
ACTIVATIONS: dict[str, str | ClampedSwiGLU] = {
    **{name: name for name in NAMED if name != SILU.name},
    "clamped": ClampedSwiGLU(),
}


@dataclass(frozen=True)
class Expected:
    """The sampled rows of everything a contender may compute, in FP64, nothing rounded.

    Attributes
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    product : (rows, 2N) array
        x @ [w_gate, w_up].
    swiglu : (rows, N) array
    mlp : (rows, K_out) array or None
    stack : (rows, K) array or None
        x plus the MLP of x, layer after layer.
    bias : (2N,) array or None
        Of gate, then of up.
    """

    xp: Any
    product: Any
    swiglu: Any
    mlp: Any = None
    stack: Any = None
    bias: Any = None

    @property
    def ungated(self) -> Any:
        """Gate * up: a SwiGLU whose activation is left out."""
        gate, up = self._halves(self.product)
        return gate * up

    @property
    def biased(self) -> Any:
        """SiLU(gate + b_gate) * (up + b_up)."""
        return SILU(self.xp, *self._halves(self.product + self.bias))

    def of(self, kind: str) -> Any:
        """What an attribute's name, or one of `ACTIVATIONS`, stands for."""
        if kind in ACTIVATIONS:
            return find(ACTIVATIONS[kind])(self.xp, *self._halves(self.product))
        return getattr(self, kind)

    def _halves(self, both: Any) -> tuple[Any, Any]:
        n = both.shape[1] // 2
        return both[:, :n], both[:, n:]


def expected(xp: Any, x: Any, w2: Any, down: Any = None, bias: Any = None) -> Expected:
    """FP64 results of sampled rows.

    Parameters
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    x : (rows, K) array
    w2 : (2N, K) array
        Gate rows above up rows.
    down : (N, K_out) array, optional
    bias : (2N,) array, optional
        Of gate, then of up.
    """
    n = w2.shape[0] // 2
    x64 = x.astype(xp.float64)
    # One half of the weights at a time: in FP64 they are large.
    gate = x64 @ w2[:n].T.astype(xp.float64)
    up = x64 @ w2[n:].T.astype(xp.float64)
    hidden = SILU(xp, gate, up)
    result = None if down is None else hidden @ down.astype(xp.float64)
    added = None if bias is None else bias.astype(xp.float64)
    return Expected(xp, xp.concatenate([gate, up], axis=1), hidden, result, bias=added)


def stack(xp: Any, x: Any, layers: Iterable[tuple[Any, Any]]) -> Any:
    """X + mlp(x), layer after layer, in FP64.

    Parameters
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    x : (rows, K) array
    layers : iterable of ((2N, K) array, (N, K) array)
        Gate rows above up rows, and down.
    """
    x = x.astype(xp.float64)
    for w2, down in layers:
        x = x + expected(xp, x, w2, down).mlp
    return x


def compare(xp: Any, found: Any, reference: Any) -> tuple[float, float]:
    """Relative error in the Frobenius norm, and the share of elements off by more than 1%.

    NaN is off, and makes the relative error NaN.
    """
    error = found.astype(xp.float64) - reference
    relative = xp.linalg.norm(error) / xp.linalg.norm(reference)
    off = ~(xp.abs(error) <= 0.01 * xp.abs(reference))
    return float(relative), float(off.mean())
