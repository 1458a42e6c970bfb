"""Expected results of contenders: sampled rows in FP64."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...problem.activations import NAMED, SILU, ClampedSwiGLU, find
from ...testing import numerics

SAMPLED_ROWS = 256
#: Activation of a contender other than SiLU -> the argument that asks for it.
ACTIVATIONS: dict[str, str | ClampedSwiGLU] = {
    **{name: name for name in NAMED if name != SILU.name},
    "clamped": ClampedSwiGLU(),
}


@dataclass(frozen=True)
class Expected:
    """Sampled rows of everything that a contender may compute, in FP64, nothing rounded.

    Attributes
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    product : (rows, 2N) array
        x @ [w_gate, w_up].
    bias : (2N,) array or None
        Gate's, then up's.
    down : (N, K_out) array or None
    stack : (rows, K) array or None
        x plus the MLP of x, layer after layer.
    x : (rows, K) array or None
        For contenders that only move it.
    """

    xp: Any
    product: Any
    bias: Any = None
    down: Any = None
    stack: Any = None
    x: Any = None

    @property
    def swiglu(self) -> Any:
        """SiLU(gate) * up, (rows, N)."""
        return SILU(self.xp, *_halves(self.product))

    @property
    def ungated(self) -> Any:
        """SwiGLU whose activation is left out: gate * up."""
        gate, up = _halves(self.product)
        return gate * up

    @property
    def biased(self) -> Any:
        """SiLU(gate + b_gate) * (up + b_up)."""
        return SILU(self.xp, *_halves(self.product + self.bias.astype(self.xp.float64)))

    @property
    def mlp(self) -> Any:
        """SwiGLU through the down projection, (rows, K_out)."""
        return numerics.product(self.xp, self.swiglu, self.down)

    def of(self, kind: str) -> Any:
        """Compute what an attribute's name, or one of `ACTIVATIONS`, stands for."""
        if kind in ACTIVATIONS:
            return find(ACTIVATIONS[kind])(self.xp, *_halves(self.product))
        return getattr(self, kind)


def _halves(both: Any) -> tuple[Any, Any]:
    """Split gate from up."""
    n = both.shape[1] // 2
    return both[:, :n], both[:, n:]


def stack(xp: Any, x: Any, layers: Iterable[tuple[Any, Any]]) -> Any:
    """Compute x + mlp(x), layer after layer, in FP64.

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
        x = x + Expected(xp, numerics.product(xp, x, w2.T), down=down).mlp
    return x
