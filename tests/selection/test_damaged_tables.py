"""Damaged and lying tuned tables: a call goes on without them, whatever they hold."""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cuswiglu.kernels.decode import DecodeVariant
from cuswiglu.kernels.estimate import Rates
from cuswiglu.kernels.manifest import variants
from cuswiglu.kernels.split import Split
from cuswiglu.selection import tuned
from cuswiglu.selection.select import PORTABLE, select
from cuswiglu.selection.tuned import Key
from tests.helpers.compiled import GATED
from tests.helpers.damage import JSON, bounded, damaged, damages, places, with_other
from tests.helpers.problems import plain_problem, problem
from tests.helpers.tables import H200, entry, table

FEW = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PROBLEMS = [problem(m=300), problem(m=4), plain_problem(m=300), plain_problem(m=4)]
DECODING = next(kernel for kernel in variants() if kernel.family == "decode")
CHOICES = {
    Key.of(PROBLEMS[0]): entry(GATED[0].name, 4),
    Key.of(PROBLEMS[1]): entry(DECODING.name, 1, 3.0, Split(8, 1, 1)),
}
TEXT = tuned.serialise(table(CHOICES, rates={GATED[0].name: Rates(0.5, 2.0)}))


def assert_selection_goes_on(tables, text):
    """Whatever is chosen can be launched; a table that is not read is told once."""
    path = tables().user
    path.write_bytes(text)
    with bounded(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        choices = [select(asked, H200) for asked in PROBLEMS]
    for asked, choice in zip(PROBLEMS, choices, strict=True):
        if choice.variant == PORTABLE:
            continue
        assert choice.kernel.obstacle(asked) is None
        assert 0 <= choice.raster_rows <= tuned.MAX_RASTER_ROWS
        assert (choice.split is not None) == isinstance(choice.kernel, DecodeVariant)
        assert choice.split is None or choice.kernel.tiling(asked, choice.split)
    assert len(told) <= 1
    assert all(str(path) in str(warning.message) for warning in told)


@FEW
@given(st.lists(damages(len(TEXT)), min_size=1, max_size=3))
def test_selection_goes_on_with_a_damaged_table(tables, made):
    assert_selection_goes_on(tables, damaged(TEXT.encode(), made))


@FEW
@given(st.sampled_from(list(places(json.loads(TEXT)))), JSON)
@example(("rates", GATED[0].name, 0), float("nan"))
@example(("rates", GATED[0].name, 1), -1e300)
@example(("choices", 0, "us"), float("nan"))
@example(("choices", 0, "us"), float("inf"))
@example(("choices", 0, "raster_rows"), 2**70)
@example(("choices", 1, "split"), [0, 0, 0])
@example(("choices", 1, "split"), [-8, 1, 1])
@example(("choices", 1, "split"), [2**70, 1, 2**70])
@example(("choices", 1, "split"), [8, 0, 1])
def test_selection_goes_on_with_a_table_that_lies(tables, place, value):
    assert_selection_goes_on(
        tables, json.dumps(with_other(json.loads(TEXT), place, value)).encode()
    )


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"format":' * 200_000, "1" * 5000, "\ufeff" + TEXT]
)
def test_selection_goes_on_with_a_table_that_is_deep_or_odd(tables, text):
    assert_selection_goes_on(tables, text.encode())
