"""Whatever is drawn: the result is right or an error says why not, and nothing else is written."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, event, given, settings

import cuswiglu
from tests.helpers.drawn_calls import DOCUMENTED, calls, do, overlaps

VARIANTS = ["auto", "auto", "auto", "numpy"]
ASKED = [*VARIANTS * 5, "cublas", "dual", "interleave", "duel", cuswiglu.variants()[0].name]
MOST = 40
PATIENT = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=3 * settings.default.max_examples,
)


@PATIENT
@given(calls(ASKED, MOST, odd=True))
def test_a_call_is_right_or_an_error_and_writes_nowhere_else(call):
    error = do(np, call)
    event("refused" if error else "computed")
    if overlaps(call):
        assert isinstance(error, DOCUMENTED)


@PATIENT
@given(calls(VARIANTS, MOST, odd=False))
def test_a_call_of_plain_layouts_is_never_refused(call):
    error = do(np, call)
    assert error is None, f"{error}"
