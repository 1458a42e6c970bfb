"""Runs notebooks from top to bottom, each in a new process; fails if a cell does.

    python notebooks/run.py                  # all of them; files stay as they are
    python notebooks/run.py --keep 1_*.ipynb # writes the outputs into the file

What is kept depends on the code and its outputs alone: no execution counts, times or versions.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from here import SKIPPED
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

FOLDER = Path(__file__).parent
CELL_SECONDS = 300
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path) -> Any:
    """The notebook with its outputs, computed in its folder.

    Raises
    ------
    CellExecutionError, CellTimeoutError, DeadKernelError
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    return notebook


def normalised(notebook: Any) -> Any:
    """The notebook without what differs from run to run and from editor to editor."""
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat_minor = 5
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = None
            if "metadata" in output:
                output.metadata = {}
    return notebook


def skipped(notebook: Any) -> list[str]:
    """What its cells say that they left out."""
    return [
        line
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for line in output.get("text", "").splitlines()
        if line.startswith(SKIPPED)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run them; returns the exit status."""
    parser = argparse.ArgumentParser(description="Runs notebooks; fails if a cell does.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="all of this folder by default")
    parser.add_argument("--keep", action="store_true", help="write the outputs into the files")
    options = parser.parse_args(arguments)
    failed = []
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        start = time.monotonic()
        try:
            notebook = execute(path)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            failed.append(path.name)
            print(f"{path.name}: FAILED\n{error}", flush=True)
            continue
        print(f"{path.name}: right, {time.monotonic() - start:.1f} s", flush=True)
        for line in skipped(notebook):
            print(f"    {line}")
        if options.keep:
            nbformat.write(normalised(notebook), path)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
