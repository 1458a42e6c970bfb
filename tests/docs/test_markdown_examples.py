"""The Python in README.md and in docs/ runs, page by page, from the first block to the last."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks_of(page):
    """Source of each block, behind as many lines as there are before it: errors name the page's."""
    text = page.read_text()
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in BLOCK.finditer(text)]


PYTHON = {str(page.relative_to(ROOT)): blocks for page in PAGES if (blocks := blocks_of(page))}


@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page_runs(page, request, jax_on_the_cpu, model_folder):
    known = {"__name__": "__main__"}
    for block in PYTHON[page]:
        if "import cupy" in block:
            request.getfixturevalue("cupy_here")
        exec(compile(block, page, "exec"), known)


def test_the_readme_shows_cupy_numpy_and_jax():
    shown = "".join(PYTHON["README.md"])
    assert all(f"import {library}" in shown for library in ("cupy", "numpy", "jax"))
