"""NaN, infinities, zeros, subnormals, large gates and overflow in every kernel.

What is defined, and what is not, is said in tests/special_values.py.
"""

from __future__ import annotations

import pytest

import cuswiglu
from cuswiglu.kernels.split import Split
from tests.gpu.cases import (
    CASES,
    DECODE_CASES,
    DECODE_IDS,
    IDS,
    SWAPPED_CASES,
    SWAPPED_IDS,
    launch,
    weights,
)
from tests.gpu.compare import assert_guard_intact
from tests.helpers.special_values import PAIRS, ROWS, assert_product, assert_swiglu, inputs

# Tails of tiles in M, N and K; one step of K, and several.
SHAPES = [(ROWS, 64, 8), (ROWS, 200, 72), (150, 264, 520), (300, 96, 1032)]
BY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))


@pytest.fixture
def special(cupy):
    """special(m, n, k, layout): inputs on the host, and on the device, weights along `layout`."""

    def make(m, n, k, layout):
        host = inputs(m, n, k)
        x, gate, up = (cupy.asarray(array) for array in host)
        if layout != "n":
            gate, up = (cupy.ascontiguousarray(weight.T).T for weight in (gate, up))
        return host, (x, gate, up)

    return make


def check(cupy, poisoned, kernel, layout, shape, special, **options):
    host, (x, gate, up) = special(*shape, layout)
    guard, out = poisoned(*shape[:2])
    launch(cupy, kernel, x, weights(layout, gate, up, kernel.gated), out, **options)
    found = cupy.asnumpy(out)
    if kernel.gated:
        assert_swiglu(found, *host)
    else:
        assert_product(found, *host[:2])
    assert_guard_intact(cupy, guard, *shape[:2])


@BY_SHAPE
@pytest.mark.parametrize(("kernel", "layout"), CASES + SWAPPED_CASES, ids=IDS + SWAPPED_IDS)
def test_every_variant_gives_what_is_defined(cupy, poisoned, special, kernel, layout, shape):
    check(cupy, poisoned, kernel, layout, shape, special)


@BY_SHAPE
@pytest.mark.parametrize(("kernel", "layout"), DECODE_CASES, ids=DECODE_IDS)
def test_every_decode_kernel_gives_what_is_defined(cupy, poisoned, special, kernel, layout, shape):
    # As many CTAs share K as there are steps of it for, up to 4.
    ranks = 1 if kernel.gated or shape[2] < 8 * kernel.block_k else 4
    split = Split(40, ranks, 1)
    check(cupy, poisoned, kernel, layout, shape, special, split=split)


@BY_SHAPE
@pytest.mark.parametrize("layout", ["k", "n"])
@pytest.mark.parametrize("variant", ["auto", "cublas"])
def test_the_chosen_and_the_portable_path_give_what_is_defined(
    cupy, special, shape, layout, variant
):
    host, device = special(*shape, layout)
    found = cupy.asnumpy(cuswiglu.swiglu(*device, variant=variant))
    assert_swiglu(found, *host, sums_flushed=variant == "cublas")


@pytest.mark.parametrize("m", [1, ROWS, 300])
def test_an_mlp_is_finite_where_its_intermediate_is(cupy, special, m):
    _, (x, gate, up) = special(m, PAIRS + 96, 200, "k")
    gate, up = gate[:, PAIRS:], up[:, PAIRS:]  # ordinary ones
    down = cupy.random.default_rng(1).standard_normal((96, 64), dtype=cupy.float32).astype(x.dtype)
    hidden = cuswiglu.swiglu(x, gate, up).astype(cupy.float32)
    found = cuswiglu.mlp(x, gate, up, down).astype(cupy.float32)
    assert bool((cupy.isfinite(found).all(axis=1) == cupy.isfinite(hidden).all(axis=1)).all())
