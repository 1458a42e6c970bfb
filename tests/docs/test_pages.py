"""What the pages owe: links that lead somewhere, every public name, every room, a short README."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("jax")

import cuswiglu
import cuswiglu.jax
import cuswiglu.models

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(?:#[^)]*)?\)")
ROOMS = [
    path.stem
    for path in sorted((ROOT / "cuswiglu").iterdir())
    if (path / "__init__.py").exists() or (path.suffix == ".py" and path.stem[0] != "_")
]


def markdown_of(page):
    """The text of a page; of a notebook, that of its Markdown cells."""
    if page.suffix == ".md":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_to_files(page):
    links = LINK.findall(markdown_of(page))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_is_for_the_first_two_minutes():
    assert len((ROOT / "README.md").read_text().split()) <= 600


@pytest.mark.parametrize("module", [cuswiglu, cuswiglu.jax, cuswiglu.models])
def test_the_reference_has_every_public_name_of_a_module(module):
    page = (DOCS / "api" / f"{module.__name__.rpartition('.')[2]}.md").read_text()
    assert f".. py:module:: {module.__name__}\n" in page
    named = re.findall(r"^\.\. (?:auto)?(?:function|class|exception|data):: (\w+)", page, re.M)
    assert sorted(named) == sorted(module.__all__)


@pytest.mark.parametrize("room", ROOMS)
def test_the_architecture_tells_of_every_room(room):
    assert f">{room}</text>" in (DOCS / "images" / "rooms.svg").read_text()
    assert f"`{room}`" in (DOCS / "architecture.md").read_text()
