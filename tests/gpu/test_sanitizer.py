"""compute-sanitizer finds nothing in any variant; `python -m tests.gpu.sanitize` reports more."""

from __future__ import annotations

import pytest

from tests.gpu import sanitize


@pytest.fixture(autouse=True)
def _there_is_one():
    try:
        sanitize.find()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def test_a_kernel_that_writes_too_far_is_found():
    assert sanitize.blind() is None


@pytest.mark.timeout(3 * sanitize.LIMIT_S)
@pytest.mark.parametrize("family", sanitize.families())
@pytest.mark.parametrize("tool", sanitize.TOOLS)
def test_sanitizer_is_clean(tool, family):
    result = sanitize.sanitize(tool, [family])
    assert result.clean, f"{result.said}\n{result.text[-4000:]}"
