"""The suite `random`: values of M that were drawn, who takes part at which, targets."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from benchmarks.targets import targets
from cuswiglu.bench.cells import MODELS, cell
from cuswiglu.bench.contenders import Contender, Found, InapplicableError, _own, _quack
from cuswiglu.bench.record import Outcome, Record
from cuswiglu.bench.suites import random as suite
from cuswiglu.bench.suites.random import MANY, SUITE
from tests.helpers.bench_records import DUAL, SESSION, outcomes, row, variants

FAMILIES = ("dual", "interleave", "sync", "decode")


def test_every_model_has_as_many_cells():
    assert [sum(one.model == model for one in SUITE.cells) for model in MODELS] == [16] * 7


def test_no_cell_is_drawn_twice():
    assert len(set(SUITE.cells)) == len(SUITE.cells) == 112


def test_most_cells_have_many_tokens_and_none_more_than_8192():
    assert sum(one.m >= MANY for one in SUITE.cells) == 84
    assert 1 <= min(one.m for one in SUITE.cells) <= max(one.m for one in SUITE.cells) <= 8192


def test_many_tokens_are_drawn_log_uniform():
    """Of six equal parts of log M, each has its share of 14 cells, as far as chance allows."""
    low, high = math.log(MANY), math.log(8192)
    parts = [0] * 6
    for one in SUITE.cells:
        if one.m >= MANY:
            parts[min(5, int(6 * (math.log(one.m) - low) / (high - low)))] += 1
    assert all(7 <= count <= 23 for count in parts), parts


def test_the_same_seed_draws_the_same_cells():
    assert suite.cells(40) == SUITE.cells
    assert suite.cells(41) != SUITE.cells


@pytest.fixture
def found(monkeypatch):
    """Contenders of a variant of each family and of QuACK, which are never made."""

    def contender(name, family=""):
        return Contender(name, lambda inputs: inputs.cell, family=family)

    kernels = Found([contender(f"{family}_x", family) for family in FAMILIES], {"jax": "not here"})
    monkeypatch.setattr(_own, "variants", lambda decode: kernels)
    monkeypatch.setattr(_quack, "gate_up", lambda: Found([contender("quack")]))
    return [suite.ours(), suite.quack()]


def takes_part(parts, m):
    """Names of those, except auto and bare, that can be made for so many tokens."""
    names = []
    for one in (one for part in parts for one in part.contenders):
        if one.name in ("auto", "bare"):
            continue
        try:
            one.make(SimpleNamespace(cell=cell("3b", m)))
        except InapplicableError:
            continue
        names.append(one.name)
    return names


def test_kernels_of_the_paper_take_no_part(found):
    assert [one.name for one in found[0].contenders] == ["auto", "dual_x", "decode_x", "bare"]


@pytest.mark.parametrize(
    ("m", "names"), [(128, ["dual_x", "decode_x"]), (129, ["dual_x", "quack"])]
)
def test_who_takes_part_depends_on_the_number_of_tokens(found, m, names):
    assert takes_part(found, m) == names


def test_who_is_missing_is_told(found):
    assert found[0].missing == {"jax": "not here"}


# Targets


def kept(made):
    """A record of all cells; `made` gives a cell's outcomes."""
    rows = (row(one.model, one.m, made(one)) for one in SUITE.cells)
    return Record("random", 0, 5, (SESSION,), tuple(rows))


def typical(one):
    made = outcomes(100.0, bare=108.0, quack=130.0, quack_default=120.0)
    return made | variants(dual=99.0)


def test_targets_of_a_full_run():
    assert [
        (one.value.split()[0], one.must, one.aim, one.met) for one in targets(kept(typical))
    ] == [
        ("1.080", "1.040", "1.100", "must"),
        ("1.080", "0.900", "0.970", "aim"),
        ("1.200", "1.150", "1.250", "must"),
        ("1.200", "0.970", "1.000", "aim"),
        ("100.0%", "95.0%", "99.0%", "aim"),
    ]


def test_few_tokens_are_not_judged():
    slow = outcomes(100.0, bare=10.0, quack=10.0) | variants(dual=10.0)
    found = targets(kept(lambda one: typical(one) if one.m >= MANY else slow))
    assert {one.met for one in found} == {"must", "aim"}
    assert {(one.cells, one.of) for one in found} == {(84, 84)}


@pytest.mark.parametrize(("bad", "met"), [(0, "aim"), (1, "must"), (4, "must"), (5, "missed")])
def test_a_choice_is_good_within_three_percent_of_the_best_variant(bad, met):
    many = [one for one in SUITE.cells if one.m >= MANY]

    def made(one):
        best = 96.9 if one in many[:bad] else 97.0
        return {"auto": Outcome(100.0), DUAL: variants(dual=best)[DUAL]}

    (choice,) = targets(kept(made))
    assert choice.met == met
