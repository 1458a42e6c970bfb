"""Activations, biases and FP16: every kernel, and every way to call, against FP64."""

from __future__ import annotations

import numpy as np
import pytest

import cuswiglu
from cuswiglu.common.dtypes import BFLOAT16, FLOAT16
from cuswiglu.kernels.decode import DecodeVariant
from cuswiglu.kernels.split import Split
from cuswiglu.problem import activations
from cuswiglu.testing import numerics
from tests.gpu.cases import (
    CASES,
    DECODE_CASES,
    DECODE_IDS,
    IDS,
    RESIDENT_CASES,
    RESIDENT_IDS,
    SWAPPED_CASES,
    SWAPPED_IDS,
    launch,
    weights,
)
from tests.gpu.compare import assert_close, assert_guard_intact, product, reference, told
from tests.helpers import fp64

ACTIVATIONS = list(fp64.ACTIVATIONS)
BIASES = [(), ("first",), ("second",), ("first", "second")]
#: (M, N, K) with tails in all of them, for each kind of kernels.
SHAPES = {
    "tiles": [(65, 104, 72), (513, 1000, 584)],
    "resident": [(65, 104, 72), (5001, 1000, 248)],
    "decode": [(3, 104, 72), (33, 296, 584)],
}
EVERY = [
    pytest.param(kernel, layout, shape, id=f"{name}-{'x'.join(map(str, shape))}")
    for kind, cases, names in (
        ("tiles", CASES, IDS),
        ("tiles", SWAPPED_CASES, SWAPPED_IDS),
        ("resident", RESIDENT_CASES, RESIDENT_IDS),
        ("decode", DECODE_CASES, DECODE_IDS),
    )
    for (kernel, layout), name in zip(cases, names, strict=True)
    for shape in SHAPES[kind]
]
BY_KERNEL = pytest.mark.parametrize(("kernel", "layout", "shape"), EVERY)
GATED = [one for one in EVERY if one.values[0].gated]
BY_GATED = pytest.mark.parametrize(("kernel", "layout", "shape"), GATED)
BY_DTYPE = pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16], ids=str)


def bias_of(cupy, n, dtype, offset=0):
    """N(0, 1), `offset` elements behind an aligned address, with NaN on both sides."""
    guarded = cupy.full(n + 32, cupy.nan, cupy.float32).astype(dtype)
    bias = guarded[16 + offset : 16 + offset + n]
    bias[...] = cupy.random.standard_normal(n, dtype=cupy.float32).astype(dtype)
    return bias


def split_of(kernel):
    """Of a decode kernel: CTAs with tiles of few rows."""
    return Split(8, 1, 1) if isinstance(kernel, DecodeVariant) else None


@BY_DTYPE
@BY_KERNEL
def test_every_kernel_knows_every_activation_and_bias(
    cupy, draw, poisoned, kernel, layout, shape, dtype
):
    m, n, k = shape
    x, *drawn_weights = draw(m, k, n, "n" if layout == "n" else "k", dtype)
    # Larger, so that clamps and tails are met.
    gate, up = ((3 * w.astype(cupy.float32)).astype(dtype) for w in drawn_weights)
    if layout != "n":
        gate, up = (cupy.ascontiguousarray(w.T).T for w in (gate, up))
    views = weights(layout, gate, up, kernel.gated)
    drawn = {"first": bias_of(cupy, n, dtype, 1), "second": bias_of(cupy, n, dtype, 3)}
    for activation in ACTIVATIONS if kernel.gated else ["silu"]:
        for names in BIASES if kernel.gated else BIASES[:2]:
            first, second = (drawn[each] if each in names else None for each in drawn)
            if kernel.gated:
                expected = reference(cupy, x, gate, up, first, second, activation)
            else:
                expected = product(cupy, x, gate, first)
            guard, out = poisoned(m, n, dtype=dtype)
            biases = (first, second) if names else ()
            options = {"activation": activation, "biases": biases, "split": split_of(kernel)}
            launch(cupy, kernel, x, views, out, **options)
            with told((activation, names)):
                assert_close(cupy, out, expected)
                assert_guard_intact(cupy, guard, m, n)


@BY_DTYPE
@pytest.mark.parametrize("variant", ["auto", "cublas"])
@pytest.mark.parametrize("m", [1, 40, 300])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.filterwarnings("ignore:cuswiglu takes the portable path")
def test_a_layer_with_everything_matches_fp64(cupy, draw, dtype, variant, m, activation):
    x, gate, up = draw(m, 896, 1216, dtype=dtype)
    down = draw(1, 1216, 640, dtype=dtype)[1]
    biases = [bias_of(cupy, size, dtype, offset=1) for size in (1216, 1216, 640)]
    named = dict(zip(("b_gate", "b_up", "b_down"), biases, strict=True))
    layer = cuswiglu.GatedMLP(gate, up, down, **named, activation=activation, variant=variant)
    expected = numerics.mlp_reference(
        cupy, x, gate, up, down, activation=activations.find(activation), biases=biases
    )
    step = layer.capture(x)
    called = [layer(x) for _ in range(3)]
    for found in (
        *called,
        step(x),
        cuswiglu.mlp(x, gate, up, down, **named, activation=activation, variant=variant),
    ):
        result = numerics.compare(cupy, found, expected)
        assert found.dtype == dtype
        assert result.relative_error < (2**-8 if dtype == BFLOAT16 else 2**-11)
        # An intermediate value that is rounded the other way moves all results of a token: of one
        # token some percent of them, those near zero, by more than an ulp; of FP16 more often.
        assert result.within_ulp > (0.95 if dtype == BFLOAT16 else 0.9)


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e4, -1e4, 7.0, 7.5, -7.5, -5.5, -20.0, -90.0]


@BY_DTYPE
@pytest.mark.parametrize("m", [3, 300])
@pytest.mark.parametrize("granularity", [0, 1, 8])
def test_swiglu_with_everything_matches_fp64(cupy, draw, dtype, m, granularity):
    """Of a pair of weights, and of packed ones."""
    x, gate, up = draw(m, 896, 1216, dtype=dtype)
    biases = [bias_of(cupy, 1216, dtype, offset=1) for _ in range(2)]
    given = (cuswiglu.pack(gate, up, granularity=granularity),) if granularity else (gate, up)
    named = dict(zip(("b_gate", "b_up"), biases, strict=True))
    expected = reference(cupy, x, gate, up, *biases, "gelu")
    for _ in range(2):  # the first call, and one that finds all ready
        assert_close(cupy, cuswiglu.swiglu(x, *given, **named, activation="gelu"), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@BY_GATED
def test_special_gates_and_ups_are_fp64s(cupy, poisoned, kernel, layout, shape, activation):
    """Sums of one term that is not zero, of every pair of special values where N is large."""
    m, n, k = shape
    x = cupy.zeros((m, k), cupy.float32)
    x[:, 0] = 1
    gate, up = cupy.zeros((2, n, k), cupy.float32)
    special = cupy.asarray(SPECIAL, cupy.float32)
    gate[:, 0] = cupy.resize(special, n)
    up[:, 0] = cupy.resize(cupy.repeat(special, len(SPECIAL)), n)
    x, gate, up = (array.astype(BFLOAT16) for array in (x, gate, up))
    gate, up = (w.T if layout != "n" else cupy.ascontiguousarray(w.T) for w in (gate, up))
    guard, out = poisoned(m, n)
    views = weights(layout, gate, up, True)
    launch(cupy, kernel, x, views, out, activation=activation, split=split_of(kernel))
    assert_guard_intact(cupy, guard, m, n)
    gates, ups = gate[0].astype(cupy.float64), up[0].astype(cupy.float64)
    expected = activations.find(activation)(cupy, gates, ups).astype(BFLOAT16)
    # What vanishes in FP32 makes NaN of an infinity.
    vanishing = cupy.asnumpy(cupy.isinf(ups) & (gates < -10) & cupy.isfinite(gates))
    found, wanted = (cupy.asnumpy(v.astype(cupy.float32)) for v in (out, expected))
    found[:, vanishing] = wanted[vanishing] = 0
    wanted = np.broadcast_to(wanted, found.shape)
    np.testing.assert_allclose(found, wanted, rtol=2**-7, atol=2.0**-60)
