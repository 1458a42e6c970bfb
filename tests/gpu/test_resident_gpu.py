"""The resident kernel against FP64: every M, K and N, any number of rows; the same bits again."""

from __future__ import annotations

import random

import pytest

import cuswiglu
from tests.gpu.cases import RESIDENT_CASES, RESIDENT_IDS, launch, weights
from tests.gpu.compare import assert_close, assert_guard_intact, reference, told
from tests.gpu.replays import same_bits

BY_CASE = pytest.mark.parametrize(("kernel", "layout"), RESIDENT_CASES, ids=RESIDENT_IDS)
#: (N, K): of one to four steps of K, of one column of tiles and of many; with tails.
SIZES = [(40, 200), (328, 72), (1544, 136), (136, 256)]


@pytest.mark.parametrize(("n", "k"), SIZES)
@BY_CASE
def test_every_m_to_600_matches_fp64(cupy, draw, poisoned, kernel, layout, n, k):
    x, gate, up = draw(600, k, n, layout)
    views = weights(layout, gate, up, gated=True)
    expected = reference(cupy, x, gate, up)
    for m in range(1, 601):
        guard, out = poisoned(m, n)
        launch(cupy, kernel, x[:m], views, out, weights_ahead=m % 2 == 0)
        with told(m):
            assert_close(cupy, out, expected[:m])
            assert_guard_intact(cupy, guard, m, n)


@BY_CASE
def test_any_sizes_and_extras_match_fp64(cupy, draw, poisoned, kernel, layout):
    chance = random.Random()
    for _ in range(60):
        m, n = chance.randint(1, 40_000), 8 * chance.randint(1, 160)
        k = 8 * chance.randint(1, 32)
        case = (m, n, k, activation := chance.choice(("silu", "gelu", "relu", "sigmoid")))
        x, gate, up = draw(m, k, n, layout)
        biases = tuple(draw(2, n, 8)[0]) if chance.random() < 0.5 else ()
        guard, out = poisoned(m, n)
        views = weights(layout, gate, up, gated=True)
        launch(cupy, kernel, x, views, out, activation=activation, biases=biases)
        with told(case):
            assert_close(cupy, out, reference(cupy, x, gate, up, *biases, activation=activation))
            assert_guard_intact(cupy, guard, m, n)


@pytest.mark.parametrize(("n", "k"), [(128, 192), (192, 64), (64, 64), (1024, 192)])
@BY_CASE
def test_launches_one_behind_the_other_give_the_same_bits(cupy, draw, kernel, layout, n, k):
    """Loads of many rows are in flight, and overtake each other."""
    m = 100_000
    x, gate, up = draw(m, k, n, layout)
    views = weights(layout, gate, up, gated=True)
    first, again = (cupy.empty((m, n), x.dtype) for _ in range(2))
    launch(cupy, kernel, x, views, first)
    for _ in range(20):
        for _ in range(10):
            launch(cupy, kernel, x, views, again)
        assert same_bits(cupy, first, again)


@BY_CASE
def test_padded_rows_of_x_and_weights_are_not_read(cupy, draw, kernel, layout):
    x, gate, up = draw(300, 256, 408, layout)
    x, gate, up = x[:, 16:216], gate[16:216, 8:208], up[16:216, 208:408]
    found = cuswiglu.swiglu(x, gate, up, variant=kernel.name)
    assert_close(cupy, found, reference(cupy, x, gate, up))
