"""JAX under jit, on views of the same memory. CUDA graphs cannot capture it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from ...arrays import cupy_module
from ...kernels import manifest
from ...testing import timing
from .base import Contender, Found, Runner, absent
from .inputs import Inputs


def gate_up() -> Found:
    """Find jax, of gate and up."""
    reason = why_missing()
    return absent(["jax"], reason) if reason else Found([Contender("jax", _make)])


def why_missing() -> str:
    """Tell why nothing that runs on JAX can take part; empty if it can."""
    try:
        import jax

        platform = jax.devices()[0].platform
    except Exception as error:
        return f"jax cannot be used: {error}"
    return "" if platform in ("gpu", "cuda") else f"jax sees no GPU, only {platform}"


def why_ours_missing() -> str:
    """Tell why `cuswiglu.jax` cannot take part; empty if it can."""
    reason = why_missing()
    if reason:
        return reason
    try:
        manifest.variants()
        import cuswiglu.jax  # noqa: F401
    except (ImportError, manifest.KernelsUnavailableError) as error:
        return str(error)
    return ""


#: Calls ahead of the timed ones of a turn. Where its buffers have moved since the turn before, XLA
#: records its CUDA graphs again.
SETTLING = 3
#: What is timed takes at least so long, in microseconds, so that the host's hiccups are small.
LEAST_US = 5_000.0


def elapsed(call: Callable[[], Any], replays: int) -> float:
    """Time calls of a jitted function that follow others, in microseconds of the host's clock.

    To dispatch the first and to wake up behind the last takes the host half a millisecond. That is
    in the time of few calls as in that of many, and so not in the difference.
    """
    import jax

    def wall(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            last = call()
        jax.block_until_ready(last)
        return (time.perf_counter() - start) * 1e6

    for _ in range(SETTLING):
        one = wall(1)
    calls = max(replays, math.ceil(LEAST_US / one))
    few = wall(calls)
    return (wall(2 * calls) - few) * replays / calls


class JaxTimed:
    """All sets in one jitted function, dispatched ahead of the GPU; timed by the host's clock."""

    def __init__(self, all_sets: Callable[[], Any]) -> None:
        self._all_sets = all_sets

    def prepare(self, stream: Any, sets: int) -> timing.Stopwatch:
        """Compile all sets, and wait for CuPy's stream before each turn."""
        import jax

        jax.block_until_ready(self._all_sets())

        def stopwatch(replays: int) -> float:
            stream.synchronize()
            return elapsed(self._all_sets, replays)

        return stopwatch


def plain_mlp(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """Compute an MLP as it is written in JAX; weights (K, N), (K, N), (N, K_out)."""
    import jax

    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


def plain_swiglu(x: Any, gate: Any, up: Any) -> Any:
    """Compute gate and up as they are written in JAX; weights (K, N)."""
    import jax

    return jax.nn.silu(x @ gate) * (x @ up)


def weights(inputs: Inputs) -> list[tuple[Any, Any]]:
    """View gate and up of each set as JAX's arrays, (N, K)."""
    import jax.numpy as jnp

    both = zip(inputs.w_gate, inputs.w_up, strict=True)
    return [(jnp.from_dlpack(gate), jnp.from_dlpack(up)) for gate, up in both]


def jitted(inputs: Inputs, function: Callable[..., Any], sets: Any) -> Runner:
    """Run a function of x and of each set of weights under `jax.jit`, all sets in one program.

    There each call waits for the one before: XLA would join products of one x into larger ones.
    """
    import jax
    import jax.numpy as jnp

    x, one = jnp.from_dlpack(inputs.x), jax.jit(function)

    def in_turn(x: Any, sets: Any) -> list[Any]:
        results = []
        for arrays in sets:
            x, result = jax.lax.optimization_barrier((x, one(x, *arrays)))
            results.append(result)
        return results

    every = jax.jit(in_turn)

    def output() -> Any:
        return cupy_module().from_dlpack(jax.block_until_ready(one(x, *sets[0])))

    return Runner(output, JaxTimed(lambda: every(x, sets)), captured=False)


def _make(inputs: Inputs) -> Runner:
    return jitted(inputs, lambda x, gate, up: plain_swiglu(x, gate.T, up.T), weights(inputs))
