"""What the pages owe: links that lead somewhere, every public name, every room, a short README."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("jax")

import cuswiglu
import cuswiglu.jax
import cuswiglu.models
from cuswiglu import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(?:#[^)]*)?\)")
#: A path in the repository, but for what is built.
PATH = re.compile(
    r"`((?:cuswiglu/(?!cubins)|kernels_cu|build_scripts|benchmarks|tests|docs|examples|notebooks)"
    r"/?[\w./*]*)[`#]"
)
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_that_a_page_names_are_there(page):
    if page.name == "CHANGELOG.md":  # names what is gone, too
        return
    named = PATH.findall(markdown_of(page))
    assert [path for path in named if not list(ROOT.glob(path))] == []


def test_the_readme_is_for_the_first_two_minutes():
    assert len((ROOT / "README.md").read_text().split()) <= 600


@pytest.mark.parametrize("module", [cuswiglu, cuswiglu.jax, cuswiglu.models])
def test_the_reference_has_every_public_name_of_a_module(module):
    page = (DOCS / "api" / f"{module.__name__.rpartition('.')[2]}.md").read_text()
    assert f".. py:module:: {module.__name__}\n" in page
    named = re.findall(r"^\.\. (?:auto)?(?:function|class|exception|data):: (\w+)", page, re.M)
    assert sorted(named) == sorted(module.__all__)


def shell_lines_of(page):
    """Lines of a page's shell blocks, and of its indented ones."""
    text = markdown_of(page)
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    return [*"".join(blocks).splitlines(), *re.findall(r"^ {4}(\S.*)$", text, re.M)]


COMMANDS = {
    (page.name, line.partition("#")[0].strip())
    for page in PAGES
    for line in shell_lines_of(page)
    if line.startswith("cuswiglu ")
}


@pytest.mark.parametrize(("page", "command"), sorted(COMMANDS))
def test_a_command_of_a_page_is_one_of_the_command_line(page, command):
    _, *arguments = shlex.split(command)
    assert cli.parser().parse_args(arguments).command == arguments[0]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/install.md"])
def test_make_has_every_target_of_a_page(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    told = re.findall(r"(?:^(?: {4})?|`)make ([a-z-]+)", (ROOT / page).read_text(), re.M)
    assert told
    assert set(told) <= set(targets)


@pytest.mark.parametrize("room", ROOMS)
def test_the_architecture_tells_of_every_room(room):
    assert f">{room}</text>" in (DOCS / "images" / "rooms.svg").read_text()
    assert f"`{room}`" in (DOCS / "architecture.md").read_text()
