"""Everything in this folder needs a Hopper GPU: `pytest -m gpu`."""

from __future__ import annotations

import pathlib

import pytest

from tests.gpu import drawing
from tests.gpu.sharing import gpu_memory

HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def _memory(request):
    """Room for the test: with `-n`, processes share one GPU."""
    with gpu_memory(whole=request.node.get_closest_marker("whole_gpu") is not None):
        yield


@pytest.fixture(scope="session")
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture
def draw(cupy):
    """Fresh random inputs: draw(m, k, n, major) -> x, gate, up, as N(0, 1), N(0, 1) / sqrt(K).

    BF16, unless another dtype is said.
    """
    from cuswiglu.common.dtypes import BFLOAT16

    one = drawing.drawer(cupy, None)

    def inputs(m, k, n, major="k", dtype=BFLOAT16):
        gate, up = (drawing.weight(one, k, n, major, dtype) for _ in range(2))
        return one(m, k, 1.0, dtype), gate, up

    return inputs


@pytest.fixture
def no_plans():
    """As a new process: a choice that is there already does not warn again."""
    from cuswiglu.api import dispatch

    dispatch.clear_caches()


@pytest.fixture
def poisoned(cupy):
    """poisoned(m, n): a larger buffer full of NaN, and an output inside it."""
    import ml_dtypes

    def make(m, n, pad=8, dtype=ml_dtypes.bfloat16):
        guard = cupy.full((m + 2, n + 2 * pad), cupy.nan, cupy.float32).astype(dtype)
        return guard, guard[1 : m + 1, pad : pad + n]

    return make


@pytest.fixture
def arriving_late(cupy):
    """arriving_late(x): zeros that become x behind other work on a busy stream; and that stream."""
    held = []

    def arrive(x):
        late = cupy.zeros_like(x)
        big = cupy.random.standard_normal((6000, 6000), dtype=cupy.float32)
        held.append(big)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.runtime.deviceSynchronize()
        with stream:
            for _ in range(4):
                big @ big  # keeps the stream busy, so that x arrives late
            late[...] = x
        return late, stream

    return arrive
