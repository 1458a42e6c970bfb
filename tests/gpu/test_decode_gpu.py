"""Decode kernels against FP64, however their work is cut; and the same bits every time."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import cuswiglu
from cuswiglu import arrays, problem
from cuswiglu.kernels.split import Split
from cuswiglu.testing import numerics
from tests.gpu.cases import DECODE_CASES, DECODE_IDS, launch, weights
from tests.gpu.compare import assert_close, assert_guard_intact, product, reference, told
from tests.gpu.replays import captured, poison, same_bits
from tests.helpers.fake_driver import run_in_threads

BY_CASE = pytest.mark.parametrize(("kernel", "layout"), DECODE_CASES, ids=DECODE_IDS)
BY_LAYOUT = pytest.mark.parametrize("layout", ["k", "n"])
K, N = 896, 4864  # of Qwen-2.5-0.5b

# Tails in all of them; K of less than a step, of fewer and of more than there are stages, and of
# steps that do not divide among the CTAs of a cluster; fewer tiles than SMs, and several turns.
MS = (1, 3, 8, 9, 17, 64, 65, 130, 200)
NS = (8, 40, 296, 1000)
KS = (8, 72, 200, 584, 1032)
ROWS = {"k": (8, 9, 27, 64, 65, 100, 128), "n": (8, 24, 64, 72, 128)}
RANKS, CTAS, AHEAD = (1, 2, 4, 8), (1, 2), (False, True)


def covering(kernel, layout, inputs):
    """Of all cases that can be launched so many that every two values meet in one of them."""
    every = list(itertools.product(MS, NS, KS, ROWS[layout], RANKS, CTAS, AHEAD))
    random.Random(0).shuffle(every)
    met = set()
    for case in every:
        pairs = set(itertools.combinations(enumerate(case), 2))
        m, n, k, rows, ranks, ctas, ahead = case
        if pairs <= met:
            continue
        split = Split(rows, ranks, ctas)
        if kernel.tiling(inputs(m, n, k)[-1], split) is not None:
            met |= pairs
            yield m, n, k, split, ahead


@pytest.fixture(scope="module")
def kept():
    """Inputs, drawn once for each size and layout: they are the same for all kernels and splits."""
    return {}


@BY_CASE
def test_every_kernel_matches_fp64_however_it_is_cut(cupy, draw, poisoned, kept, kernel, layout):
    def inputs(m, n, k):
        """x, the views of the weights, what FP64 makes of them, and the problem."""
        key = m, n, k, layout, kernel.gated
        if key not in kept:
            x, gate, up = draw(m, k, n, layout)
            views = weights(layout, gate, up, kernel.gated)
            expected = reference(cupy, x, gate, up) if kernel.gated else product(cupy, x, gate)
            _, out = poisoned(m, n)
            asked = problem.describe(arrays.view("x", x), views, arrays.view("out", out))
            kept[key] = x, views, expected, asked
        return kept[key]

    for m, n, k, split, ahead in covering(kernel, layout, inputs):
        x, views, expected, _ = inputs(m, n, k)
        guard, out = poisoned(m, n)
        launch(cupy, kernel, x, views, out, weights_ahead=ahead, split=split)
        with told((m, n, k, split, ahead)):
            assert_close(cupy, out, expected)
            assert_guard_intact(cupy, guard, m, n)


@pytest.mark.parametrize(
    ("kernel", "layout"),
    [case for case in DECODE_CASES if case[0].gated],
    ids=lambda c: str(c)[:60],
)
@pytest.mark.parametrize("m", [1, 13, 140])
def test_padded_rows_of_x_and_weights(cupy, draw, kernel, layout, m):
    x, gate, up = draw(m, 256, 408, layout)
    x, gate, up = x[:, 16:216], gate[16:216, 8:208], up[16:216, 200:400]
    found = cuswiglu.swiglu(x, gate, up, variant=kernel.name)
    assert_close(cupy, found, reference(cupy, x, gate, up))


# The same bits


@pytest.fixture
def layer(draw):
    """layer(layout, **options): a GatedMLP of the sizes of Qwen-2.5-0.5b, and its weights."""

    def make(layout="k", **options):
        _, gate, up = draw(1, K, N, layout)
        down = draw(1, N, K, layout)[1]
        return cuswiglu.GatedMLP(gate, up, down, **options), (gate, up, down)

    return make


@BY_CASE
def test_how_operands_are_loaded_changes_no_bit(cupy, draw, kernel, layout):
    """Weights ahead or not, one CTA an SM or two."""
    m = kernel.tokens + 5
    x, gate, up = draw(m, 1032, 1000, layout)
    views = weights(layout, gate, up, kernel.gated)
    found = []
    for ahead, ctas in itertools.product(AHEAD, range(1, kernel.ctas + 1)):
        out = cupy.empty((m, 1000), x.dtype)
        out.fill(np.nan)
        split = Split(40, 1 if kernel.gated else 4, ctas)
        launch(cupy, kernel, x, views, out, weights_ahead=ahead, split=split)
        found.append(out)
    assert all(same_bits(cupy, out, found[0]) for out in found[1:])


@pytest.mark.parametrize("m", [1, 16])
def test_a_thousand_calls_give_the_same_bits(cupy, draw, layer, m):
    _, parts = layer()
    x = draw(m, K, 8)[0]
    first = cuswiglu.mlp(x, *parts)
    expected = numerics.mlp_reference(cupy, x, *parts)
    assert numerics.compare(cupy, first, expected).relative_error < 2**-8
    bits, different = first.view(cupy.uint16), cupy.zeros((), cupy.int64)
    out = cupy.empty_like(first)
    for _ in range(1000):
        poison(out)
        cuswiglu.mlp(x, *parts, out=out)
        different += (out.view(cupy.uint16) != bits).sum()
    assert int(different) == 0


@pytest.mark.parametrize("m", [1, 16])
def test_threads_on_streams_of_their_own_get_the_bits_of_one(cupy, draw, layer, m):
    mlp, _ = layer()
    x = draw(m, K, 8)[0]
    expected = mlp(x)

    def wrong(number):
        """Turns whose bits differ."""
        with cupy.cuda.Stream(non_blocking=True) as stream:
            found = [mlp(x) for _ in range(50)]
            stream.synchronize()
            return [turn for turn, one in enumerate(found) if not same_bits(cupy, one, expected)]

    cupy.cuda.runtime.deviceSynchronize()
    assert run_in_threads(wrong) == [[]] * 8


# The same bits whatever M


@BY_LAYOUT
def test_a_token_has_the_same_bits_with_any_number_of_others(cupy, draw, layer, layout):
    mlp, parts = layer(layout, deterministic="batch")
    x = draw(256, K, 8)[0]
    whole = mlp(x)
    expected = numerics.mlp_reference(cupy, x, *parts)
    assert numerics.compare(cupy, whole, expected).relative_error < 2**-8
    for m in range(1, 257):
        assert same_bits(cupy, mlp(x[:m]), whole[:m]), m


@BY_LAYOUT
def test_a_token_has_the_same_bits_wherever_it_stands(cupy, draw, layer, layout):
    mlp, _ = layer(layout, deterministic="batch")
    x = draw(256, K, 8)[0]
    whole = mlp(x)
    for first, m in [(255, 1), (100, 7), (31, 16), (7, 40), (100, 130), (3, 200)]:
        found = mlp(x[first : first + m])
        assert same_bits(cupy, found, whole[first : first + m]), (first, m)


def test_more_tokens_than_any_kernel_has_columns_for_get_the_same_bits(cupy, draw, layer):
    mlp, _ = layer(deterministic="batch")
    x = draw(1000, K, 8)[0]
    whole = mlp(x)
    for m in (1, 16, 128, 300):
        assert same_bits(cupy, mlp(x[:m]), whole[:m]), m


@pytest.mark.filterwarnings("error:cuswiglu takes the portable path")
@pytest.mark.parametrize("m", [1, 16, 300])
def test_where_no_kernel_can_the_same_bits_are_refused_and_nothing_is_written(cupy, draw, layer, m):
    mlp, _ = layer(deterministic="batch")
    shifted = cupy.zeros(m * K + 1, draw(1, 8, 8)[0].dtype)[1:].reshape(m, K)
    out = cupy.empty((m, K), shifted.dtype)
    out.fill(np.nan)
    with pytest.raises(ValueError, match=r"cannot compute this problem: x's address"):
        mlp(shifted, out=out)
    assert bool(cupy.isnan(out.astype(cupy.float32)).all())


# Graphs


@pytest.mark.parametrize("m", [1, 16, 100])
def test_a_stack_of_layers_in_a_graph_matches_fp64_on_fresh_inputs(cupy, draw, layer, m):
    """Kernels start before the ones ahead end: each must still read what those wrote."""
    layers = [layer("kn"[number % 2]) for number in range(4)]
    buffers = [draw(m, K, 8)[0] for _ in range(5)]

    def stack():
        for (mlp, _), source, target in zip(layers, buffers, buffers[1:], strict=False):
            mlp(source, out=target)

    stack()  # plans, loads
    graph, stream = captured(cupy, stack)
    with stream:
        for turn in range(50):
            for buffer in buffers[1:]:
                buffer.fill(np.nan)
            buffers[0][...] = draw(m, K, 8)[0]
            graph.launch(stream)
            stream.synchronize()
            for (_, parts), source, target in zip(layers, buffers, buffers[1:], strict=False):
                expected = numerics.mlp_reference(cupy, source, *parts)
                found = numerics.compare(cupy, target, expected)
                assert found.relative_error < 2**-8, turn
