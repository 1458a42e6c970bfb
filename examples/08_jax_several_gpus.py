"""Cut a layer over several GPUs in JAX: tensor parallelism by shard_map.

Shows: gate and up cut along N, down along its rows, one sum over the GPUs, COMPILER_OPTIONS.
Needs: the extra jax. It takes all GPUs that JAX sees; without one, four virtual devices of the CPU.
Run:   python examples/08_jax_several_gpus.py
"""

import os

# Before JAX is imported; devices of the CPU alone.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import cuswiglu.jax

TOKENS, HIDDEN, INTERMEDIATE = 16, 256, 1024
#: Of x, gate, up and down: how each is cut.
SPECS = P(), P("tp", None), P("tp", None), P(None, "tp")


def layer(x, gate_proj, up_proj, down_proj):
    """One layer, or the part of it that a GPU computes."""
    return cuswiglu.jax.mlp(x, gate_proj.T, up_proj.T, down_proj.T)


def main():
    """Compute on one device and on all, print, check."""
    keys = iter(jax.random.split(jax.random.key(0), 4))

    def drawn(*shape):
        values = jax.random.normal(next(keys), shape) * shape[-1] ** -0.5
        return values.astype(jnp.bfloat16)

    x = drawn(TOKENS, HIDDEN)
    shapes = (INTERMEDIATE, HIDDEN), (INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE)
    weights = [drawn(*shape) for shape in shapes]
    alone = jax.jit(layer)(x, *weights)

    mesh = Mesh(np.array(jax.devices()), ("tp",))
    summed = jax.shard_map(
        lambda *given: jax.lax.psum(layer(*given), "tp"),
        mesh=mesh,
        in_specs=SPECS,
        out_specs=P(),
    )
    parallel = jax.jit(summed, compiler_options=cuswiglu.jax.COMPILER_OPTIONS)
    parts = [
        jax.device_put(array, NamedSharding(mesh, spec))
        for array, spec in zip((x, *weights), SPECS, strict=True)
    ]
    together = parallel(*parts)

    one, all_of_them = (np.asarray(y).astype(np.float64) for y in (alone, together))
    difference = np.linalg.norm(all_of_them - one) / np.linalg.norm(one)
    print(f"{mesh.size} devices of {jax.default_backend()}, against one: {difference:.5f}")
    assert difference < 2**-7  # each part of the sum is rounded


if __name__ == "__main__":
    main()
