"""Tensor parallelism: mlp inside shard_map, on 8 devices that the CPU pretends to have."""

from __future__ import annotations

import json
import textwrap

import pytest

from tests.helpers.processes import printed_by_jax

pytest.importorskip("jax", reason="cuswiglu.jax needs it")

#: The recipe of `cuswiglu.jax.mlp`, and FP64 beside it.
RECIPE = """
import json, re
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
import cuswiglu.jax
from cuswiglu.testing import numerics
from cuswiglu.jax import operation
from tests.helpers.host_arrays import draw
shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map

x, gate, up, down = draw(24, 64, 192, 32)
given = [jnp.asarray(array) for array in (x, gate.T, up.T, down.T)]  # as a checkpoint has them

def layer(x, gate, up, down):
    return jax.lax.psum(cuswiglu.jax.mlp(x, gate.T, up.T, down.T), "tp")

def parallel(devices):
    mesh = Mesh(jax.devices()[:devices], ("tp",))
    columns, rows = P("tp", None), P(None, "tp")
    return jax.jit(
        shard_map(layer, mesh=mesh, in_specs=(P(), columns, columns, rows), out_specs=P())
    )
"""


def run(code):
    """What `code` prints as JSON, behind the recipe, in a process of its own."""
    return json.loads(printed_by_jax(RECIPE + textwrap.dedent(code), devices=8))


def test_any_number_of_devices_gives_the_mlp():
    errors = run("""
        expected = numerics.mlp_reference(np, x, gate, up, down)
        found = [np.asarray(parallel(devices)(*given)) for devices in (1, 2, 8)]
        print(json.dumps([numerics.compare(np, one, expected).relative_error for one in found]))
        """)
    # Parts are rounded to BF16 before they are summed, in BF16.
    assert errors[0] < 2**-8
    assert max(errors[1:]) < 2**-7


def test_gradients_are_those_of_one_device():
    """Also of x, which each device has whole, and has a part of the gradient for."""
    errors = run("""
        def loss(call):
            return lambda *given: call(*given).sum(dtype=jnp.float32)

        def gradients(devices):
            found = jax.grad(loss(parallel(devices)), range(4))(*given)
            return [np.asarray(array).astype(np.float32) for array in found]

        norm = np.linalg.norm
        pairs = zip(gradients(1), gradients(8))
        print(json.dumps([float(norm(one - eight) / norm(one)) for one, eight in pairs]))
        """)
    assert max(errors) < 2**-7


def test_each_device_calls_the_kernels_on_its_part():
    """As JAX lowers it for Hopper GPUs; what follows the call is the sum."""
    call, after = run("""
        from tests.helpers.tables import H200
        operation.hopper = lambda: H200
        operation.operation.cache_clear()
        text = parallel(8).trace(*given).lower(lowering_platforms=("cuda",)).as_text()
        (call,) = re.findall(r'cuswiglu_gated_mlp_1.*call = "(.*?)"\\}', text)
        print(json.dumps([call.replace("\\\\22", '"'), text.count("all_reduce")]))
        """)
    sizes = json.loads(call)
    assert (sizes["m"], sizes["k"], sizes["n"]) == (24, 64, 192 // 8)
    assert after == 1
