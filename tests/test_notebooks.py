"""The notebooks as they are kept, and what runs them. `make notebooks` executes them."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

for needed in ("nbformat", "nbclient", "ipykernel", "rich"):
    pytest.importorskip(needed)

import here
import nbformat
import run

NOTEBOOKS = sorted(run.FOLDER.glob("*.ipynb"))
MAX_BYTES = 400_000
#: A path of the machine that a notebook was run on.
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|usr|opt|var|mnt|srv|work|Users)/[\w.]")

one_by_one = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def notebook_of(*sources):
    """A notebook of code cells that have not run."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return nbformat.v4.new_notebook(cells=cells)


def outputs_of(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def texts_of(notebook):
    """Everything that can be read: sources, printed text, and text and HTML shown."""
    yield from (cell.source for cell in notebook.cells)
    for output in outputs_of(notebook):
        yield output.get("text", "")
        shown = output.get("data", {}).items()
        yield from (text for kind, text in shown if kind.startswith("text/"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@one_by_one
def test_a_kept_notebook_is_valid_small_and_normalised(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < MAX_BYTES
    assert run.normalised(notebook) == notebook


@one_by_one
def test_a_kept_notebook_was_run_without_an_error_to_its_last_cell(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code[-1].outputs, "a notebook ends with what it found: run.py --keep"
    kinds = {output.output_type for output in outputs_of(notebook)}
    assert "error" not in kinds


@one_by_one
def test_a_kept_notebook_names_no_path_of_a_machine(path):
    notebook = nbformat.read(path, as_version=4)
    assert [found for text in texts_of(notebook) if (found := MACHINE_PATH.findall(text))] == []


@pytest.mark.parametrize(
    "text", ["{}tmp/x.py:3: UserWarning", "in '{}home/me/a'", "({}root/.venv)"]
)
def test_a_path_of_a_machine_is_recognised(text):
    assert MACHINE_PATH.search(text.format("/"))


@pytest.mark.parametrize("text", ["notebooks/results/a.json", "https://arxiv.org/abs/1", "</td>/"])
def test_other_slashes_are_none(text):
    assert not MACHINE_PATH.search(text)


def test_normalising_drops_counts_and_metadata_and_keeps_outputs():
    notebook = notebook_of("6 * 7")
    notebook.metadata["editor"] = "mine"
    (cell,) = notebook.cells
    cell.execution_count = 5
    cell.metadata["collapsed"] = True
    data = {"text/plain": "42"}
    cell.outputs = [
        nbformat.v4.new_output("execute_result", data, metadata={"a": 1}, execution_count=5)
    ]
    kept = run.normalised(notebook)
    (kept_cell,) = kept.cells
    assert kept.metadata == run.METADATA
    assert (kept_cell.execution_count, kept_cell.metadata) == (None, {})
    (output,) = kept_cell.outputs
    assert (output.data, output.execution_count, output.metadata) == (data, None, {})


def test_a_cell_that_fails_fails_the_run_and_leaves_the_file(tmp_path, capsys):
    path = tmp_path / "wrong.ipynb"
    nbformat.write(notebook_of("print('skipped: it, for a reason')", "assert 1 == 2"), path)
    before = path.read_text()
    assert run.main(["--keep", str(path)]) == 1
    assert "AssertionError" in capsys.readouterr().out
    assert path.read_text() == before


def test_what_was_skipped_is_named_and_outputs_are_kept_on_request(tmp_path, capsys):
    path = tmp_path / "right.ipynb"
    nbformat.write(notebook_of("print('skipped: it, for a reason')", "6 * 7"), path)
    before = path.read_text()
    assert run.main([str(path)]) == 0
    assert "skipped: it, for a reason" in capsys.readouterr().out
    assert path.read_text() == before
    assert run.main(["--keep", str(path)]) == 0
    (said, found) = outputs_of(nbformat.read(path, as_version=4))
    assert said.text == "skipped: it, for a reason\n"
    assert found.data == {"text/plain": "42"}


def test_without_a_hopper_gpu_a_cell_says_what_is_skipped_and_why(monkeypatch, capsys):
    found = SimpleNamespace(backend="numpy", reason="no driver")
    monkeypatch.setattr(here.environment, "collect", lambda: found)
    assert here.gpu("a graph") is False
    assert capsys.readouterr().out == "skipped: a graph: no Hopper GPU here (no driver)\n"


def test_with_a_hopper_gpu_nothing_is_said(monkeypatch, capsys):
    monkeypatch.setattr(here.environment, "collect", lambda: SimpleNamespace(backend="sm90"))
    assert here.gpu() is True
    assert capsys.readouterr().out == ""


def test_a_suite_without_a_record_is_said_with_the_command_that_makes_one(monkeypatch, capsys):
    monkeypatch.setattr(here, "RESULTS", here.RESULTS / "nothing")
    assert here.kept("random") is None
    said = capsys.readouterr().out
    assert said.startswith("skipped: suite random")
    assert "cuswiglu bench --suite random --json notebooks/results/random_h200.json" in said
