"""Kernels that exist only to be timed, if `python -m build_scripts --ablations` has built them."""

from __future__ import annotations

import pytest

from build_scripts.build import ABLATED
from cuswiglu import KernelsUnavailableError
from cuswiglu.bench.contenders._own import UNGATED
from cuswiglu.kernels.manifest import variants
from tests.gpu.cases import launch, weights
from tests.gpu.compare import assert_close, assert_guard_intact, product, reference


@pytest.fixture
def ablations():
    try:
        return variants(ABLATED)
    except KernelsUnavailableError:
        pytest.skip("python -m build_scripts --ablations builds them")


@pytest.mark.parametrize("layout", ["k", "n"])
@pytest.mark.parametrize(("m", "n", "k"), [(65, 104, 72), (1000, 4872, 904)])
def test_they_compute_what_they_are_compared_with(cupy, draw, poisoned, ablations, m, n, k, layout):
    x, gate, up = draw(m, k, n, layout)
    for kernel in ablations:
        guard, out = poisoned(m, n)
        launch(cupy, kernel, x, weights(layout, gate, up, gated=True), out)
        if kernel.family == UNGATED:
            assert_close(cupy, out, product(cupy, x, gate) * product(cupy, x, up))
        else:
            assert_close(cupy, out, reference(cupy, x, gate, up))
        assert_guard_intact(cupy, guard, m, n)
