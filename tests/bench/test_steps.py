"""The suite `steps`: the time of 8 more tokens in the same cell, and its targets."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.targets import targets
from cuswiglu.bench.contenders import Runner, _own
from cuswiglu.bench.record import Outcome, Record
from cuswiglu.bench.report import tables
from cuswiglu.bench.suites.steps import SUITE, growth, ours
from tests.helpers.bench_cells import named
from tests.helpers.bench_host import CELL, host, measured, right
from tests.helpers.bench_records import FAILED, SESSION, row

assert host  # a fixture


def test_cells_go_from_129_in_steps_of_8():
    assert [one.m for one in SUITE.cells] == list(range(129, 512, 8))
    assert {one.model for one in SUITE.cells} == {"3b"}


def test_contenders_are_auto_the_same_of_more_tokens_and_the_bare_product():
    assert [one.name for one in SUITE.find().contenders] == ["auto", "auto-more", "bare"]


def test_more_tokens_are_of_the_same_values_and_compared_with_fp64(host, monkeypatch):
    seen = []

    def swiglu(inputs):
        seen.append(inputs)
        return Runner(lambda: right(inputs), lambda number: None)

    monkeypatch.setattr(_own, "swiglu", swiglu)
    found = measured(named("auto-more", ours())).outcomes["auto-more"]
    (more,) = seen
    assert more.hidden.shape == (CELL.m + 8, CELL.n)
    assert np.array_equal(more.x[-8:], more.x[:8])
    assert (found.error, found.microseconds) == ("", 7.0)


def kept(times):
    """A record of M -> (time of auto, of 8 more tokens, of the bare product)."""
    rows = [
        row("3b", m, dict(zip(("auto", "auto-more", "bare"), map(Outcome, us), strict=True)))
        for m, us in times.items()
    ]
    return Record("steps", 0, 9, (SESSION,), tuple(rows))


def test_growth_is_of_the_same_cell():
    assert growth(kept({129: (40.0, 38.0, 50.0)}).cells[0]) == pytest.approx(0.95)


@pytest.mark.parametrize("name", ["auto", "auto-more"])
def test_without_one_of_the_two_there_is_no_growth(name):
    one = row("3b", 129, {"auto": Outcome(40.0), "auto-more": Outcome(40.0)} | {name: FAILED})
    assert growth(one) is None


def test_a_line_has_growth_and_speed():
    record = kept({129: (40.0, 44.0, 50.0)})
    line = tables.line(SUITE.columns, record, record.cells[0])
    assert line.split() == ["3b", "129", "40.0", "1.100", "1.250"]


@pytest.mark.parametrize(("least", "met"), [(38.8, "must"), (38.7, "missed")])
def test_time_may_fall_by_three_percent(least, met):
    (fall, _) = targets(kept({129: (40.0, 41.0, 50.0), 137: (40.0, least, 50.0)}))
    assert fall.value == f"{least / 40:.3f} (3b at M = 137)"
    assert (fall.met, fall.must, fall.aim, fall.of) == (met, "0.970", "-", 48)


def test_speed_is_judged_just_above_whole_tiles():
    slow = {129: 50.0, 137: 50.0, 145: 100.0, 257: 50.0, 265: 54.0}
    (_, speed) = targets(kept({m: (us, us, 50.0) for m, us in slow.items()}))
    assert speed.value == "0.926 (3b at M = 265)"
    assert (speed.met, speed.must, speed.aim) == ("must", "0.920", "0.970")
    assert (speed.cells, speed.of) == (4, 4)
