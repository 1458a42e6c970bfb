"""JAX on a Hopper GPU: the kernels under jit, vmap and grad, in XLA's CUDA graphs; against FP64."""

from __future__ import annotations

import os
import re

import ml_dtypes
import numpy as np
import pytest

from cuswiglu.problem import activations
from cuswiglu.selection import select
from cuswiglu.testing import numerics
from tests.gpu.compare import assert_close, reference

# Other tests of this process need memory too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
jax = pytest.importorskip("jax", reason="cuswiglu.jax needs it")

import jax.numpy as jnp

import cuswiglu.jax
from cuswiglu.jax import launch, operation

K, N = 896, 4864
LAYERS = 24


@pytest.fixture(autouse=True)
def _jax_has_the_gpu():
    if operation.hopper() is None:
        pytest.skip("JAX sees no Hopper GPU: pip install 'jax[cuda13]'")


@pytest.fixture
def launches(monkeypatch):
    """Addresses of each launch that XLA's handler makes."""
    seen = []
    original = launch.Launch.__call__

    def call(self, addresses, stream):
        seen.append(tuple(addresses))
        return original(self, addresses, stream)

    monkeypatch.setattr(launch.Launch, "__call__", call)
    return seen


@pytest.fixture
def inputs(cupy, draw):
    """inputs(m, k, n): x, and checkpoint matrices of gate, up and down; CuPy's, then JAX's."""

    def make(m, k=K, n=N):
        x, gate, up = draw(m, k, n)
        down = draw(1, n, k)[1]
        own = x, gate.T, up.T, down.T
        cupy.cuda.runtime.deviceSynchronize()
        return own, tuple(jnp.asarray(cupy.asnumpy(array)) for array in own)

    return make


def to_cupy(cupy, array):
    return cupy.asarray(np.asarray(array))


def swiglu(x, gate, up, **options):
    return cuswiglu.jax.swiglu(x, gate.T, up.T, **options)


def mlp(x, gate, up, down, **options):
    return cuswiglu.jax.mlp(x, gate.T, up.T, down.T, **options)


def plain_mlp(*given):
    return mlp(*given, variant="cublas")


def check_mlp(cupy, found, own):
    x, gate, up, down = own
    expected = numerics.mlp_reference(cupy, x, gate.T, up.T, down.T)
    result = numerics.compare(cupy, to_cupy(cupy, found), expected)
    assert result.relative_error < 2**-8
    # An intermediate value that is rounded the other way moves all results of a token: of one
    # token, some percent of them, those near zero, by more than an ulp.
    assert result.within_ulp > 0.95


@pytest.mark.parametrize("m", [1, 7, 16, 63, 64, 65, 127, 129, 300, 512, 1000])
def test_swiglu_of_any_number_of_rows(cupy, inputs, launches, m):
    own, given = inputs(m, 512, 1216)
    found = jax.jit(swiglu)(*given[:3])
    x, gate, up, _ = own
    assert_close(cupy, to_cupy(cupy, found), reference(cupy, x, gate.T, up.T))
    assert launches


@pytest.mark.parametrize("wrap", [jax.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("m", [1, 16, 200, 4096])
def test_mlp_matches_fp64(cupy, inputs, launches, m, wrap):
    own, given = inputs(m)
    check_mlp(cupy, wrap(mlp)(*given), own)
    assert launches


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("m", [16, 512])
@pytest.mark.parametrize("activation", [cuswiglu.ClampedSwiGLU(), "sigmoid", "identity"], ids=str)
def test_mlp_with_biases_and_another_activation_matches_fp64(
    cupy, draw, launches, activation, m, dtype
):
    x, gate, up = draw(m, K, N, dtype=dtype)
    own = x, gate, up, draw(1, N, K, dtype=dtype)[1]
    biases = [draw(1, size, 8, dtype=dtype)[0][0] for size in (N, N, K)]
    cupy.cuda.runtime.deviceSynchronize()
    given = [jnp.asarray(cupy.asnumpy(array)) for array in (x, gate.T, up.T, own[3].T, *biases)]

    def call(x, gate, up, down, b_gate, b_up, b_down):
        added = {"b_gate": b_gate, "b_up": b_up, "b_down": b_down}
        return mlp(x, gate, up, down, **added, activation=activation)

    found = to_cupy(cupy, jax.jit(call)(*given))
    meant = activations.find(activation)
    expected = numerics.mlp_reference(cupy, *own, activation=meant, biases=biases)
    assert (found.dtype, len(launches) > 0) == (dtype, True)
    limit = 2**-8 if dtype == ml_dtypes.bfloat16 else 2**-11
    assert numerics.compare(cupy, found, expected).relative_error < limit


@pytest.mark.usefixtures("any_evenness")
def test_both_kernels_in_one_call(cupy, inputs, launches, monkeypatch):
    monkeypatch.setattr(select.tuned, "lookup", lambda *arguments: None)
    operation.transformable.cache_clear()
    own, given = inputs(1000)
    check_mlp(cupy, jax.jit(mlp)(*given), own)
    assert {len(addresses) for addresses in launches} == {6}
    operation.transformable.cache_clear()


def test_weights_along_n(cupy, draw, launches):
    x, gate, up = draw(256, 512, 1024, "n")
    given = [jnp.asarray(cupy.asnumpy(array)) for array in (x, gate, up)]
    found = jax.jit(lambda *given: cuswiglu.jax.swiglu(*given, weights="n"))(*given)
    assert_close(cupy, to_cupy(cupy, found), reference(cupy, x, gate, up))
    assert launches


def test_checkpoint_matrices_are_not_copied(inputs):
    """Operands of XLA's custom call are the program's own parameters."""
    _, given = inputs(512)
    text = jax.jit(swiglu).lower(*given[:3]).compile().as_text()
    operands = re.search(rf"custom-call\((.*?)\), custom_call_target=\"{launch.TARGET}\"", text)
    assert operands is not None
    assert " transpose(" not in text
    assert not re.search(rf"bf16\[{N},{K}\][^\n]* (copy|fusion)\(", text)


def test_vmap_folds_into_rows(cupy, inputs, launches):
    own, (x, *weights) = inputs(6 * 40)
    found = jax.jit(jax.vmap(lambda x: mlp(x, *weights)))(x.reshape(6, 40, K))
    check_mlp(cupy, found.reshape(6 * 40, K), own)
    assert len(launches) < 6


def test_gradients_are_those_of_plain_jax_in_fp32(inputs, launches):
    _, given = inputs(96, 256, 512)

    def loss(call):
        return lambda *given: (call(*given).astype(jnp.float32) ** 2).sum()

    def in_fp32(x, gate, up, down):
        product = x @ gate.T
        return (product * jax.nn.sigmoid(product) * (x @ up.T)) @ down.T

    found = jax.jit(jax.grad(loss(mlp), range(4)))(*given)
    assert launches
    with jax.default_matmul_precision("highest"):
        exact = [array.astype(jnp.float32) for array in given]
        expected = jax.jit(jax.grad(loss(in_fp32), range(4)))(*exact)
    for one, wanted in zip(found, expected, strict=True):
        error = jnp.linalg.norm(one.astype(jnp.float32) - wanted) / jnp.linalg.norm(wanted)
        assert float(error) < 2**-6


@pytest.mark.parametrize("m", [16, 512])
def test_a_stack_of_layers_is_replayed_from_a_cuda_graph(cupy, inputs, launches, m):
    """24 whole MLPs with their residuals; XLA calls the handler while it records, then replays."""
    own, (x, *first) = inputs(m)
    layers = [first, *(inputs(1)[1][1:] for _ in range(LAYERS - 1))]
    layers = [(gate, up, down * jnp.bfloat16(0.25)) for gate, up, down in layers]

    @jax.jit
    def stack(x, layers):
        for layer in layers:
            x = x + mlp(x, *layer)
        return x

    found = jax.block_until_ready(stack(x, layers))
    for _ in range(5):
        jax.block_until_ready(stack(x, layers))
    recorded = len(launches)
    for _ in range(20):
        again = jax.block_until_ready(stack(x, layers))
        assert bool((again.view(jnp.uint16) == found.view(jnp.uint16)).all())
    assert len(launches) - recorded < 20 * LAYERS / 2
    expected = cupy.asarray(own[0]).astype(cupy.float64)
    for layer in layers:
        gate, up, down = (to_cupy(cupy, array) for array in layer)
        rounded = expected.astype(ml_dtypes.bfloat16)
        expected = expected + numerics.mlp_reference(cupy, rounded, gate.T, up.T, down.T)
    result = numerics.compare(cupy, to_cupy(cupy, found), expected)
    assert result.relative_error < 2**-6


def test_a_loop_over_stacked_weights_reads_each_layers_own(cupy, inputs):
    """In a scan XLA may copy a layer's weights just ahead of the call that reads them."""
    _, (x, *_) = inputs(64, 256, 512)
    layers = [inputs(1, 256, 512)[1][1:] for _ in range(6)]
    stacked = tuple(jnp.stack(parts) for parts in zip(*layers, strict=True))

    def over(call):
        return jax.jit(lambda x, w: jax.lax.scan(lambda x, w: (x + call(x, *w), None), x, w)[0])

    expected = over(plain_mlp)(x, stacked).astype(jnp.float32)
    for _ in range(20):
        found = over(mlp)(x, stacked).astype(jnp.float32)
        assert float(jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected)) < 2**-6


def test_results_that_feed_other_work_are_waited_for(inputs):
    """The call is in XLA's stream: what comes behind it reads the whole result."""
    _, given = inputs(300)

    @jax.jit
    def program(*given):
        return jnp.abs(mlp(*given)).max(), mlp(*given)

    for _ in range(20):
        largest, whole = program(*given)
        assert float(largest) == float(jnp.abs(whole).max())


def test_errors_of_the_driver_are_raised_by_jax(inputs, monkeypatch):
    def broken(self, addresses, stream):
        raise RuntimeError("no launch today")

    monkeypatch.setattr(launch.Launch, "__call__", broken)
    _, given = inputs(8, 64, 96)
    with pytest.raises(Exception, match="cuswiglu: RuntimeError: no launch today"):
        jax.block_until_ready(jax.jit(swiglu)(*given[:3]))
