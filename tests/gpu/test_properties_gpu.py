"""As tests/test_properties.py, on the GPU: every kernel, the portable path, whatever is drawn.

`pytest -m gpu --hypothesis-profile=long tests/gpu/test_properties_gpu.py` tries 24,000 cases.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import cuswiglu
from tests.helpers.drawn_calls import DOCUMENTED, calls, do, overlaps

KERNELS = [kernel.name for kernel in cuswiglu.variants()]
VARIANTS = ["auto", "auto", "cublas"]
ASKED = [*VARIANTS * 3, "dual", "sync", "interleave", "decode", "numpy", "duel", *KERNELS]
MOST = 400
pytestmark = pytest.mark.timeout(0)  # the long profile takes minutes
SHORT, OF_LONG = 300, 0.4  # cases of a test; and in the long profile so much of its own number
PATIENT = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    max_examples=max(SHORT, int(OF_LONG * settings.default.max_examples)),
)


@PATIENT
@given(calls(ASKED, MOST, odd=True))
def test_a_call_is_right_or_an_error_and_writes_nowhere_else(cupy, call):
    error = do(cupy, call)
    event("refused" if error else "computed")
    if overlaps(call):
        assert isinstance(error, DOCUMENTED)


@PATIENT
@given(calls(VARIANTS, MOST, odd=False))
def test_a_call_of_plain_layouts_is_never_refused(cupy, call):
    error = do(cupy, call)
    assert error is None, f"{error}"


@PATIENT
@given(st.sampled_from(KERNELS), calls(["auto"], MOST, odd=False))
def test_a_named_kernel_is_right_or_says_its_limit(cupy, name, call):
    error = do(cupy, replace(call, variant=name))
    event(f"{name}: {'refused' if error else 'computed'}")
    assert error is None or name in str(error)
