"""Tables of a record beside targets and claims."""

from __future__ import annotations

from typing import Any

from cuswiglu.bench.record import Record
from cuswiglu.bench.report.summaries import rich_modules

from . import paper_claims
from .targets import targets

_COLOURS = {"aim": "green", "must": "yellow", "missed": "red"}
_VERDICTS = {"aim": "pass, aim reached", "must": "pass", "missed": "FAIL"}


def targets_table(record: Record) -> Any:
    """Tabulate the targets, with pass or fail."""
    table = rich_modules().table.Table("figure", "value", "must", "aim", "", "cells", box=None)
    for target in targets(record):
        verdict = _VERDICTS[target.met] + (", so far" if target.partial else "")
        table.add_row(
            target.name,
            target.value,
            target.must,
            target.aim,
            f"[{_COLOURS[target.met]}]{verdict}[/]",
            f"{target.cells}/{target.of}",
        )
    return table


def claims_table(record: Record) -> Any:
    """Tabulate the paper's claims beside ours."""
    rich = rich_modules()
    table = rich.table.Table("claim", "paper (H100)", "here", "how", box=None)
    for claim in paper_claims.claims(record):
        cells = (claim.what, claim.paper, claim.ours, claim.note)
        table.add_row(*(rich.markup.escape(text) for text in cells))
    return table


def cell_claims_table(record: Record) -> Any:
    """Tabulate the claims that are made of single cells."""
    headings = ["model", "M", "over eager", "won by", "of peak"]
    whole_mlp = paper_claims.is_whole_mlp(record)
    if not whole_mlp:
        headings += ["FLOP/B before", "after", "fusion eff."]
    headings += ["compile/eager", "off 1%: auto", "eager"]
    table = rich_modules().table.Table(*headings, box=None)
    for row in record.cells:
        one = paper_claims.of_cell(row, whole_mlp=whole_mlp)
        cells = [one.cell.model, str(one.cell.m), _or_dash(one.speedup, "{:.2f}x")]
        cells += [one.winner or "-", _or_dash(one.utilisation, "{:.1%}")]
        if not whole_mlp:
            cells += [f"{one.before:.0f}", f"{one.after:.0f}"]
            cells.append(_or_dash(one.fusion_efficiency, "{:.1%}"))
        cells += [_or_dash(one.compile, "{:.2f}")]
        cells += [_or_dash(one.off, "{:.3%}"), _or_dash(one.eager_off, "{:.3%}")]
        table.add_row(*cells)
    return table


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
