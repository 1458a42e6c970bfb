"""Every variant against FP64: tails in M, N and K, every layout, poisoned outputs."""

from __future__ import annotations

import pytest

import cuswiglu
from tests.gpu.cases import CASES, IDS, cut, launch, pairs, weights
from tests.gpu.compare import assert_close, assert_guard_intact, product, reference
from tests.gpu.replays import same_bits

# (M, N, K): every tail of tiles of 64 to 256; fewer tiles than SMs, several waves, last waves that
# one width would leave nearly empty.
SHAPES = [
    (1, 8, 8),
    (2, 16, 64),
    (7, 88, 72),
    (63, 96, 128),
    (64, 104, 56),
    (65, 128, 200),
    (127, 136, 512),
    (128, 192, 64),
    (129, 200, 320),
    (255, 248, 1032),
    (256, 256, 256),
    (257, 264, 640),
    (513, 1000, 584),
    (1000, 4864, 896),
    (2048, 1544, 2048),
    (3001, 2056, 392),
    (5000, 1096, 136),
    (5000, 8, 4104),
]


@pytest.mark.parametrize(("kernel", "layout"), CASES, ids=IDS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_every_variant_matches_fp64(cupy, draw, poisoned, shape, kernel, layout):
    m, n, k = shape
    x, gate, up = draw(m, k, n, "n" if layout == "n" else "k")
    guard, out = poisoned(m, n)
    launch(cupy, kernel, x, weights(layout, gate, up, kernel.gated), out)
    expected = reference(cupy, x, gate, up) if kernel.gated else product(cupy, x, gate)
    assert_close(cupy, out, expected)
    assert_guard_intact(cupy, guard, m, n)


# (M, K, wide columns, narrow columns, columns of N in the last one): tails of M, N and K; all tiles
# at once, so that a cluster begins with a narrow one, and several waves, so that it goes from wide
# ones to narrow ones; K of less than a step, and of more than there are stages.
CUTS = [
    (1, 8, 1, 1, 8),
    (65, 72, 2, 1, 56),
    (129, 200, 1, 3, 40),
    (300, 1032, 3, 2, 64),
    (1000, 136, 20, 17, 24),
    (1000, 584, 2, 35, 8),
    (1601, 264, 31, 1, 48),
]
PAIRS = [
    pytest.param(kernel, layout, *pair, id=f"{kernel.name}-{layout}-{pair[0]}-{pair[1]}")
    for kernel, layout in CASES
    for pair in pairs(kernel, layout)
]


@pytest.mark.parametrize(("kernel", "layout", "wide", "narrow"), PAIRS)
@pytest.mark.parametrize("shape", CUTS, ids=lambda s: "-".join(map(str, s)))
def test_every_pair_of_widths_matches_fp64(
    cupy, draw, poisoned, shape, kernel, layout, wide, narrow
):
    m, k, *counts = shape
    n, columns = cut(wide, narrow, *counts)
    x, gate, up = draw(m, k, n, "n" if layout == "n" else "k")
    views = weights(layout, gate, up, kernel.gated)
    expected = reference(cupy, x, gate, up) if kernel.gated else product(cupy, x, gate)
    for ahead in (False, True):
        guard, out = poisoned(m, n)
        launch(cupy, kernel, x, views, out, weights_ahead=ahead, columns=columns)
        assert_close(cupy, out, expected)
        assert_guard_intact(cupy, guard, m, n)


@pytest.mark.parametrize(("kernel", "layout"), CASES, ids=IDS)
def test_weights_loaded_ahead_give_the_same_bits(cupy, draw, kernel, layout):
    x, gate, up = draw(700, 1032, 1096, "n" if layout == "n" else "k")
    views = weights(layout, gate, up, kernel.gated)
    results = [cupy.empty((700, 1096), x.dtype) for _ in range(2)]
    for ahead, out in enumerate(results):
        launch(cupy, kernel, x, views, out, weights_ahead=bool(ahead))
    assert same_bits(cupy, *results)


@pytest.mark.parametrize(("kernel", "layout"), CASES, ids=IDS)
def test_the_same_inputs_give_the_same_bits(cupy, draw, kernel, layout):
    x, gate, up = draw(1537, 2056, 1096, "n" if layout == "n" else "k")
    views = weights(layout, gate, up, kernel.gated)
    first, again = (cupy.empty((1537, 1096), x.dtype) for _ in range(2))
    launch(cupy, kernel, x, views, first)
    for _ in range(20):
        launch(cupy, kernel, x, views, again)
        assert same_bits(cupy, first, again)


@pytest.mark.parametrize(
    ("kernel", "layout"),
    [c for c in CASES if c[1] == "k" and c[0].gated],
    ids=lambda c: str(c)[:60],
)
def test_padded_rows_of_x_and_weights(cupy, draw, kernel, layout):
    x, gate, up = draw(300, 256, 408)
    x, gate, up = x[:, 16:216], gate[16:216, 8:208], up[16:216, 208:408]
    found = cuswiglu.swiglu(x, gate, up, variant=kernel.name)
    assert_close(cupy, found, reference(cupy, x, gate, up))


def test_portable_path_matches_fp64(cupy, draw, poisoned):
    for m, n, k, major in [(1, 1, 1, "k"), (3, 5, 7, "n"), (130, 77, 201, "k"), (64, 80, 33, "n")]:
        x, gate, up = draw(m, k, n, major)
        guard, out = poisoned(m, n)
        cuswiglu.swiglu(x, gate, up, out=out, variant="cublas")
        assert_close(cupy, out, reference(cupy, x, gate, up))
        assert_guard_intact(cupy, guard, m, n)


@pytest.mark.parametrize("granularity", [8, 1])
def test_packed_weights_on_the_device_unpack_to_the_same_bits(cupy, draw, granularity):
    _, gate, up = draw(1, 200, 264)
    packed = cuswiglu.pack(gate, up, granularity=granularity)
    for found, expected in zip(packed.unpack(), (gate, up), strict=True):
        assert same_bits(cupy, found, expected)
