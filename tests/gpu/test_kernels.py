"""Every instance against FP64: tails in M, N and K, both layouts, poisoned outputs."""

from __future__ import annotations

import pytest
from compare import assert_close, assert_guard_intact, reference

import cuswiglu

NAMES = [variant.name for variant in cuswiglu.variants()]
# (M, N, K): every tail of tiles of 64 to 256; fewer tiles than SMs, and several waves.
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


@pytest.mark.parametrize("major", ["k", "n"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_every_instance_matches_fp64(cupy, draw, poisoned, shape, name, major):
    m, n, k = shape
    x, gate, up = draw(m, k, n, major)
    guard, out = poisoned(m, n)
    cuswiglu.swiglu(x, gate, up, out=out, variant=name)
    assert_close(cupy, out, reference(cupy, x, gate, up))
    assert_guard_intact(cupy, guard, m, n)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_inputs_give_the_same_bits(cupy, draw, name):
    x, gate, up = draw(1537, 1096, 2056)
    first = cuswiglu.swiglu(x, gate, up, variant=name).view(cupy.uint16)
    for _ in range(20):
        again = cuswiglu.swiglu(x, gate, up, variant=name).view(cupy.uint16)
        assert bool((first == again).all())


@pytest.mark.parametrize("name", NAMES)
def test_padded_rows_of_x_and_weights(cupy, draw, name):
    x, gate, up = draw(300, 256, 408)
    x, gate, up = x[:, 16:216], gate[16:216, 8:208], up[16:216, 208:408]
    found = cuswiglu.swiglu(x, gate, up, variant=name)
    assert_close(cupy, found, reference(cupy, x, gate, up))


def test_portable_path_matches_fp64(cupy, draw, poisoned):
    for m, n, k, major in [(1, 1, 1, "k"), (3, 5, 7, "n"), (130, 77, 201, "k"), (64, 80, 33, "n")]:
        x, gate, up = draw(m, k, n, major)
        guard, out = poisoned(m, n)
        cuswiglu.swiglu(x, gate, up, out=out, variant="cublas")
        assert_close(cupy, out, reference(cupy, x, gate, up))
        assert_guard_intact(cupy, guard, m, n)
