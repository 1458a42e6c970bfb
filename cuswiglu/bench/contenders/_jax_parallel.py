"""Stacks whose layers are cut over several devices, in JAX: ours and plain JAX's.

Gate and up are cut along N, down along its rows, and one sum over the devices ends each layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...testing import numerics, timing
from ..cells import Cell
from . import _jax
from .base import Contender, Found, Runner, absent
from .inputs import STACK_SCALE

OURS, PLAIN = "cuswiglu-jax", "jax"
#: End of the name of a contender that leaves the sum over the devices out.
UNSUMMED = "-unsummed"
AXIS = "tp"
#: Together the weights of a device's layers exceed twice its L2 (H200: 60 MB).
ROTATED_BYTES = 120 << 20
#: A program has so many layers at least, so that dispatching it is hidden: many of few tokens.
LAYERS_OF_FEW, LAYERS_OF_MANY, FEW = 12, 4, 64
SAMPLED_ROWS, SAMPLED_COLUMNS = 8, 64


def name(who: str, devices: int, *, summed: bool = True) -> str:
    """Name a contender: "jax@2", "cuswiglu-jax@8-unsummed"."""
    return f"{who}@{devices}{'' if summed else UNSUMMED}"


def programs() -> Found:
    """Find ours and plain JAX's, on one device and on all, and there also without the sum."""
    try:
        import jax

        import cuswiglu.jax

        every = jax.local_device_count()
    except (ImportError, RuntimeError) as error:
        return absent([OURS, PLAIN], f"jax cannot be used: {error}")
    contenders = []
    for devices in dict.fromkeys([1, every]):
        for summed in (True, False) if devices > 1 else (True,):
            for who, mlp in ((OURS, cuswiglu.jax.mlp), (PLAIN, _jax.plain_mlp)):
                make = functools.partial(_make, mlp, devices, summed)
                contenders.append(Contender(name(who, devices, summed=summed), make, "mlp"))
    return Found(contenders)


@dataclass
class ShardedInputs:
    """A cell's arrays on meshes of some of the devices, the same values on each.

    `layers` counts those of a program; it takes turns through fewer sets of weights.
    """

    cell: Cell
    seed: int

    def __post_init__(self) -> None:
        """Count the layers."""
        least = LAYERS_OF_FEW if self.cell.m <= FEW else LAYERS_OF_MANY
        self.layers = max(least, self.sets)

    @property
    def sets(self) -> int:
        """Sets of weights, as many as the largest mesh needs."""
        import jax

        devices: int = jax.local_device_count()
        each = 3 * self.cell.n * self.cell.k * 2 // devices
        return max(2, -(-ROTATED_BYTES // each) + 1)

    def on(self, devices: int) -> tuple[Any, Any]:
        """Give x, and sets of (gate, up, down) as a checkpoint has them, cut over a mesh."""
        cell = self.cell
        x = _x(cell.m, cell.k, self.seed, devices)
        return x, _sets(cell.k, cell.n, self.seed, self.sets, devices)

    @functools.cached_property
    def sample(self) -> tuple[Any, Any, Any]:
        """Rows and columns, and the first layer's MLP there in FP64, nothing rounded."""
        rows, columns = (
            np.unique(np.linspace(0, extent - 1, count).round().astype(int))
            for extent, count in ((self.cell.m, SAMPLED_ROWS), (self.cell.k, SAMPLED_COLUMNS))
        )
        x, sets = self.on(1)
        x, gate, up, down = (np.asarray(array) for array in (x, *sets[0]))
        hidden = numerics.swiglu_reference(np, x[rows], gate.T, up.T)
        return rows, columns, numerics.product(np, hidden, down[columns].T)


@functools.lru_cache(maxsize=2)  # of one cell
def _x(m: int, k: int, seed: int, devices: int) -> Any:
    """Draw (M, K), N(0, 1), whole on each of some devices."""
    import jax

    whole, _, _ = _shardings(devices)
    key = jax.random.fold_in(jax.random.key(seed), m)
    return jax.jit(lambda key: _normal(key, m, k, 1.0), out_shardings=whole)(key)


@functools.lru_cache(maxsize=2)  # of one model
def _sets(k: int, n: int, seed: int, sets: int, devices: int) -> list[Any]:
    """Draw sets of gate and up (N, K) and down (K, N), cut over some devices, where they lie."""
    import jax

    _, along_n, along_rows = _shardings(devices)

    def draw(key: Any) -> Any:
        gate, up, down = jax.random.split(key, 3)
        return (
            _normal(gate, n, k, k**-0.5),
            _normal(up, n, k, k**-0.5),
            _normal(down, k, n, STACK_SCALE * n**-0.5),
        )

    drawn = jax.jit(draw, out_shardings=(along_n, along_n, along_rows))
    return [drawn(key) for key in jax.random.split(jax.random.key(seed), sets)]


def _normal(key: Any, rows: int, columns: int, scale: float) -> Any:
    import jax
    import jax.numpy as jnp

    values = jax.random.normal(key, (rows, columns), jnp.float32) * scale
    return values.astype(jnp.bfloat16)


def _shardings(devices: int) -> tuple[Any, ...]:
    """Place `_specifications` on a mesh of so many devices."""
    import jax

    mesh = mesh_of(devices)
    return tuple(jax.sharding.NamedSharding(mesh, spec) for spec in _specifications())


def mesh_of(devices: int) -> Any:
    """Line up the first so many devices along one axis."""
    import jax

    return jax.sharding.Mesh(np.asarray(jax.local_devices()[:devices]), (AXIS,))


def _specifications() -> tuple[Any, Any, Any]:
    """Specify x, whole; gate and up (N, K), by rows; down (K_out, N), by columns."""
    from jax.sharding import PartitionSpec

    return PartitionSpec(), PartitionSpec(AXIS, None), PartitionSpec(None, AXIS)


def _make(mlp: Callable[..., Any], devices: int, summed: bool, inputs: Any) -> Runner:
    import jax

    import cuswiglu.jax

    def stack(x: Any, sets: Any) -> Any:
        """Compute the first layer's result and the last one's, each device's own."""
        first: Any = None
        for number in range(inputs.layers):
            gate, up, down = sets[number % len(sets)]
            y = mlp(x, gate.T, up.T, down.T)
            if summed:
                y = jax.lax.psum(y, AXIS)
            first = y if first is None else first
            x = x + y
        return first[None], x[None]

    if inputs.cell.n % (8 * devices):
        raise ValueError(
            f"N = {inputs.cell.n} cannot be cut over {devices} devices in multiples of 8"
        )
    x, sets = inputs.on(devices)
    whole, along_n, along_rows = _specifications()
    call = jax.jit(
        _shard_map()(
            stack,
            mesh=mesh_of(devices),
            in_specs=(whole, [(along_n, along_n, along_rows)] * len(sets)),
            out_specs=jax.sharding.PartitionSpec(AXIS),
        ),
        compiler_options=cuswiglu.jax.COMPILER_OPTIONS,
    )
    first = jax.block_until_ready(call(x, sets))[0]  # compiles

    def output() -> Any:
        """Sample every device's copy of the first layer's result."""
        rows, columns, _ = inputs.sample
        copies = [np.asarray(shard.data)[0] for shard in first.addressable_shards]
        return np.stack([copy[np.ix_(rows, columns)] for copy in copies])

    stopwatch = functools.partial(_jax.elapsed, lambda: call(x, sets))
    return Runner(output, _Prepared(stopwatch), captured=False)


def _shard_map() -> Any:
    import jax

    if hasattr(jax, "shard_map"):
        return jax.shard_map
    from jax.experimental.shard_map import shard_map  # JAX 0.6.0

    return shard_map


@dataclass(frozen=True)
class _Prepared:
    """Compiled already, and timed by the host's clock."""

    elapsed: timing.Stopwatch

    def prepare(self, stream: Any, sets: int) -> timing.Stopwatch:
        """Give the stopwatch."""
        return self.elapsed
