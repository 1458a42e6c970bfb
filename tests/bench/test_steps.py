"""The suite `steps`: time over that of 8 tokens fewer, in one session, and its targets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.targets import targets
from cuswiglu.bench.record import Outcome, Record
from cuswiglu.bench.report import tables
from cuswiglu.bench.suites.steps import SUITE, growth, growths
from tests.helpers.bench_records import FAILED, SESSION, row


def kept(times, bare=50.0):
    """A record of M -> time of auto."""
    rows = [row("3b", m, {"auto": Outcome(us), "bare": Outcome(bare)}) for m, us in times.items()]
    return Record("steps", 0, 9, (SESSION,), tuple(rows))


def test_cells_go_from_129_in_steps_of_8():
    assert [one.m for one in SUITE.cells] == list(range(129, 512, 8))
    assert {one.model for one in SUITE.cells} == {"3b"}


def test_contenders_are_auto_and_the_bare_product():
    assert [one.name for one in SUITE.find().contenders] == ["auto", "bare"]


def test_growth_is_over_the_cell_of_8_tokens_fewer():
    found = growths(kept({129: 40.0, 137: 38.0, 145: 57.0, 161: 60.0}))
    assert [(one.cell.m, one.value) for one in found] == [(137, 0.95), (145, 1.5)]


def test_times_of_two_sessions_are_not_compared():
    record = kept({129: 40.0, 137: 38.0})
    later = replace(record.cells[1], session=1)
    assert growth(replace(record, cells=(record.cells[0], later)), later) is None


def test_a_failed_cell_has_no_growth():
    record = kept({129: 40.0, 137: 38.0})
    failed = replace(record.cells[0], outcomes={"auto": FAILED})
    assert growth(replace(record, cells=(failed, record.cells[1])), record.cells[1]) is None


def test_a_line_has_growth_and_speed():
    record = kept({129: 40.0, 137: 44.0})
    lines = [tables.line(SUITE.columns, record, one).split() for one in record.cells]
    assert lines == [["3b", "129", "40.0", "-", "1.250"], ["3b", "137", "44.0", "1.100", "1.136"]]


@pytest.mark.parametrize(("least", "met"), [(38.8, "must"), (38.7, "missed")])
def test_time_may_fall_by_three_percent(least, met):
    (fall, _) = targets(kept({129: 40.0, 137: least}))
    assert (fall.met, fall.must, fall.aim, fall.of) == (met, "0.970", "-", 47)


def test_speed_is_judged_just_above_whole_tiles():
    slow = kept({129: 50.0, 137: 50.0, 145: 100.0, 257: 50.0, 265: 54.0})
    (_, speed) = targets(slow)
    assert speed.value == "0.926 (3b at M = 265)"
    assert (speed.met, speed.must, speed.aim) == ("must", "0.920", "0.970")
    assert (speed.cells, speed.of) == (4, 4)
