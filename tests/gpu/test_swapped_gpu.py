"""Kernels of exchanged operands against FP64: every M, however it is cut; the same bits again."""

from __future__ import annotations

import random

import pytest

import cuswiglu
from tests.gpu.cases import SWAPPED_CASES, SWAPPED_IDS, launch, weights
from tests.gpu.compare import assert_close, assert_guard_intact, product, reference, told
from tests.gpu.replays import same_bits

BY_CASE = pytest.mark.parametrize(("kernel", "layout"), SWAPPED_CASES, ids=SWAPPED_IDS)
#: (N, K): K of a step and a tail, and of as many as two CTAs of a cluster need to share it.
SIZES = [(328, 200), (1544, 1800)]
BOX_ROWS = (64, 64, 56, 48, 40, 32, 24, 16, 8)


def drawn_slicing(draw: random.Random, all_at_once):
    """Cut a problem in a way drawn at random, among all that the kernel can do."""

    def slicing(kernel, problem, at_once):
        least = -(-problem.m // kernel.most)
        tokens = kernel.tokens(problem.m, least + draw.choice((0, 0, 1, 2, 3)))
        at_once = at_once if all_at_once else draw.choice((3, 9, at_once))
        return kernel.slicing(problem, tokens, draw.choice(BOX_ROWS), at_once)

    return slicing


@pytest.mark.parametrize(("n", "k"), SIZES)
@BY_CASE
def test_every_m_to_600_matches_fp64_however_it_is_cut(cupy, draw, poisoned, kernel, layout, n, k):
    x, gate, up = draw(600, k, n, "n" if layout == "n" else "k")
    views = weights(layout, gate, up, kernel.gated)
    expected = reference(cupy, x, gate, up) if kernel.gated else product(cupy, x, gate)
    chance = random.Random(n)
    for m in range(1, 601):
        guard, out = poisoned(m, n)
        options = {
            "slicing": drawn_slicing(chance, all_at_once=True),
            "weights_ahead": chance.random() < 0.5,
            "raster_rows": chance.choice((0, 1, 3, 8)),
        }
        launch(cupy, kernel, x[:m], views, out, **options)
        with told(m):
            assert_close(cupy, out, expected[:m])
            assert_guard_intact(cupy, guard, m, n)


@BY_CASE
def test_many_waves_match_fp64(cupy, draw, poisoned, kernel, layout):
    for m, n, k in [(2047, 4864, 896), (5000, 1096, 200), (1201, 3368, 2048)]:
        x, gate, up = draw(m, k, n, "n" if layout == "n" else "k")
        views = weights(layout, gate, up, kernel.gated)
        expected = reference(cupy, x, gate, up) if kernel.gated else product(cupy, x, gate)
        for raster_rows in (0, 2):
            guard, out = poisoned(m, n)
            launch(cupy, kernel, x, views, out, raster_rows=raster_rows)
            assert_close(cupy, out, expected)
            assert_guard_intact(cupy, guard, m, n)


@BY_CASE
def test_tiles_cut_along_k_give_the_same_bits_each_time(cupy, draw, kernel, layout):
    m, n, k = 300, 3368, 3584
    x, gate, up = draw(m, k, n, "n" if layout == "n" else "k")
    views = weights(layout, gate, up, kernel.gated)
    first, again = (cupy.empty((m, n), x.dtype) for _ in range(2))
    launch(cupy, kernel, x, views, first)
    for _ in range(50):
        launch(cupy, kernel, x, views, again)
        assert same_bits(cupy, first, again)


@pytest.mark.parametrize(
    ("kernel", "layout"), [one for one in SWAPPED_CASES if one[0].gated], ids=str
)
def test_padded_rows_of_x_and_weights_are_not_read(cupy, draw, kernel, layout):
    x, gate, up = draw(300, 256, 408, layout)
    x, gate, up = x[:, 16:216], gate[16:216, 8:208], up[16:216, 208:408]
    found = cuswiglu.swiglu(x, gate, up, variant=kernel.name)
    assert_close(cupy, found, reference(cupy, x, gate, up))
