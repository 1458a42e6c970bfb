"""tokamax: its gated linear unit under `jax.jit`, the kernel of its own choice, not tuned."""

from __future__ import annotations

from typing import Any

from . import _jax
from .base import Contender, Found, Runner, absent
from .inputs import Inputs

NAME = "tokamax"


def gate_up() -> Found:
    """Find tokamax."""
    reason = _jax.why_missing()
    if reason:
        return absent([NAME], reason)
    try:
        import tokamax  # noqa: F401
    except Exception as error:
        return absent([NAME], f"tokamax cannot be imported: {error}")
    return Found([Contender(NAME, _make)])


def _make(inputs: Inputs) -> Runner:
    import jax
    import jax.numpy as jnp
    import tokamax

    def swiglu(x: Any, weights: Any) -> Any:
        return tokamax.gated_linear_unit(x, weights, activation=jax.nn.silu)

    # Both in one (K, 2, N) array: its kernel would stack a pair in each call.
    sets = [(jnp.stack([gate.T, up.T], axis=1),) for gate, up in _jax.weights(inputs)]
    return _jax.jitted(inputs, swiglu, sets)
