"""The parts of a suite of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cells import Cell
from ..contenders import Found, _own, joined
from ..record import Record
from ..report.columns import Column
from ..run.run import Method


@dataclass(frozen=True)
class Suite:
    """A benchmark: what is measured, who takes part, and what is told of it.

    Attributes
    ----------
    name : str
    about : str
        What it times, for the command's help.
    cells : tuple of Cell
    contenders : tuple of function
        Each finds contenders that are here, and tells why others are missing.
    columns : tuple of Column
        Columns of the table of cells.
    legend : str
        What the figures of that table are.
    tables : mapping of str to function
        Title -> rich table of a record.
    plots : mapping of str to function
        Name -> matplotlib figure of a record, or None if it cannot show that.
    remarks : mapping of str to str
        What is to be known of a contender that was timed.
    method : Method
        How it is measured.
    takes_kernels : bool
        Whether kernels built elsewhere can take part.
    """

    name: str
    about: str
    cells: tuple[Cell, ...]
    contenders: tuple[Callable[[], Found], ...]
    columns: tuple[Column, ...]
    legend: str
    tables: Mapping[str, Callable[[Record], Any]] = field(default_factory=dict)
    plots: Mapping[str, Callable[[Record], Any]] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    method: Method = field(default_factory=Method)
    takes_kernels: bool = False

    def find(self, also: Sequence[Path] = ()) -> Found:
        """Find everybody who can take part on this machine; imports what is installed.

        Parameters
        ----------
        also : sequence of Path
            Folders with a manifest of more kernels of ours, which selection never takes.
        """
        return joined([*(find() for find in self.contenders), *map(_own.built, also)])

    def select(
        self, models: Sequence[str] | None = None, tokens: Sequence[int] | None = None
    ) -> list[Cell]:
        """Select the cells of some models and token counts only.

        Raises
        ------
        ValueError
            If a model or a token count is not in the suite, or nothing is left.
        """
        for what, wanted, known in (
            ("model", models, list(dict.fromkeys(cell.model for cell in self.cells))),
            ("token count", tokens, sorted({cell.m for cell in self.cells})),
        ):
            for one in wanted or ():
                if one not in known:
                    choices = ", ".join(map(str, known))
                    raise ValueError(f"suite {self.name} has no {what} {one}: it has {choices}")
        chosen = [
            cell
            for cell in self.cells
            if (models is None or cell.model in models) and (tokens is None or cell.m in tokens)
        ]
        if not chosen:
            raise ValueError(f"suite {self.name} has no cell of these models at these token counts")
        return chosen
