"""NaN, infinities, zeros, subnormals, large gates, overflow on the CPU: see special_values.py."""

from __future__ import annotations

import numpy as np
import pytest

import cuswiglu
from cuswiglu.backends import cublas, reference
from tests.helpers.host_arrays import BF16
from tests.helpers.special_values import PAIRS, ROWS, assert_product, assert_swiglu, inputs

SHAPES = [(ROWS, 24, 8), (ROWS, 24, 40), (40, 64, 200), (3, 30, 16), (1, 24, 64)]
BY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))


def laid(gate, up, layout):
    """Weights in a layout, as `cuswiglu.swiglu` takes them."""
    if layout == "n":
        return np.ascontiguousarray(gate), np.ascontiguousarray(up)
    along_k = [np.ascontiguousarray(weight.T).T for weight in (gate, up)]
    if layout == "k":
        return tuple(along_k)
    return (cuswiglu.pack(*along_k, granularity=int(layout[1:])),)


@BY_SHAPE
@pytest.mark.parametrize("layout", ["k", "n", "p8", "p1"])
def test_the_numpy_backend_gives_what_is_defined(shape, layout):
    if layout == "p8" and shape[1] % 8:
        pytest.skip("packed by 8")
    x, gate, up = inputs(*shape)
    with np.errstate(all="raise", under="ignore"):  # it says itself what may happen
        found = cuswiglu.swiglu(x, *laid(gate, up, layout))
    assert_swiglu(found, x, gate, up)


@BY_SHAPE
def test_a_product_of_one_weight_gives_what_is_defined(shape):
    x, gate, _ = inputs(*shape)
    out = np.full(shape[:2], np.nan, BF16)
    reference.matmul(x, gate, out)
    assert_product(out, x, gate)


def test_an_mlp_is_nan_and_infinite_where_its_intermediate_makes_it_so():
    x, gate, up = inputs(ROWS + 3, PAIRS + 24, 40)
    gate, up = gate[:, PAIRS:], up[:, PAIRS:]  # ordinary ones
    down = np.random.default_rng(1).standard_normal((24, 16)).astype(BF16)
    finite = np.isfinite(cuswiglu.swiglu(x, gate, up).astype(np.float32)).all(axis=1)
    found = cuswiglu.mlp(x, gate, up, down)
    assert 3 < finite.sum() < ROWS
    assert (np.isfinite(found.astype(np.float32)).all(axis=1) == finite).all()


@pytest.mark.parametrize(
    ("gates", "ups", "expected"),
    [
        (1e4, 2.0, 1e4 * 2),
        (-1e4, 2.0, 0),
        (np.inf, 1.0, np.inf),
        (np.inf, -1.0, -np.inf),
        (-np.inf, 1.0, np.nan),
        (np.nan, 0.0, np.nan),
        (0.0, np.inf, np.nan),
        (-1e4, np.inf, np.nan),
        (1e30, 1e30, np.inf),
        (1e30, -1e30, -np.inf),
        (2.0**-130, 2.0**20, 2.0**-111),
    ],
)
def test_what_is_defined_says_this(gates, ups, expected):
    """The definition itself, of one element."""
    one, found = np.ones((1, 1), BF16), np.full((1, 1), expected).astype(BF16)
    gate, up = (np.full((1, 1), value).astype(BF16) for value in (gates, ups))
    assert_swiglu(found, one, gate, up)
    other = np.full((1, 1), 0.0 if np.isnan(expected) else np.nan).astype(BF16)
    with pytest.raises(AssertionError, match="1 elements"):
        assert_swiglu(other, one, gate, up)


# The portable path: its own code, with NumPy in CuPy's and cuBLAS's place


@BY_SHAPE
@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_the_portable_path_gives_what_is_defined(portable, monkeypatch, shape, rows):
    m, n, k = shape
    monkeypatch.setattr(cublas, "PRODUCT_BYTES", rows * 8 * n)
    x, gate, up = inputs(m, n, k)
    out = np.full((m, n), np.nan, BF16)
    portable.swiglu(x, gate, up, out)
    assert_swiglu(out, x, gate, up)
