"""SmolLM2's file, which comes with a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuswiglu.models._smollm2 import smollm2_path


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """The path of its GGUF file; tests that ask are skipped where it is not installed."""
    try:
        return smollm2_path()
    except FileNotFoundError as error:
        pytest.skip(str(error))
