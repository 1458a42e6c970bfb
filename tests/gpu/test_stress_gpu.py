"""Each part of the stress script, for a second or two; by itself the script takes minutes."""

from __future__ import annotations

import pytest

from tests.gpu import stress, stress_threads
from tests.gpu.verdicts import judged

# A part that hangs does not return to Python: only a thread can end the process.
pytestmark = pytest.mark.timeout(150, method="thread")


@pytest.fixture(scope="module", autouse=True)
def _memory_given_back():
    """Cases are kept as long as the process: tests behind these need the memory."""
    cupy = pytest.importorskip("cupy")
    yield
    stress_threads._cases.cache_clear()
    cupy.get_default_memory_pool().free_all_blocks()


SECONDS = {"threads": 3.0, "fresh": 0.5, "replay": 1.5, "chains": 2.0, "plans": 1.0}


@pytest.mark.parametrize("part", stress.PARTS)
def test_a_short_stress_is_right(cupy, part):
    outcome, seconds = stress.run_part(part, SECONDS.get(part, 0.0))
    verdict = judged(part, outcome, seconds)
    assert verdict.good, verdict.said
