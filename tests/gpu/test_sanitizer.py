"""compute-sanitizer finds nothing in any instance; `python -m tests.gpu.sanitize` reports more."""

from __future__ import annotations

import pytest
import sanitize


@pytest.mark.timeout(3 * sanitize.LIMIT_S)
@pytest.mark.parametrize("family", sanitize.families())
@pytest.mark.parametrize("tool", sanitize.TOOLS)
def test_sanitizer_is_clean(tool, family):
    try:
        sanitize.find()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    result = sanitize.sanitize(tool, [family])
    assert result.clean, f"{result.said}\n{result.text[-4000:]}"
