"""Tuned tables as text: what is written is read, and damage is a ValueError."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuswiglu.kernels.estimate import Rates
from cuswiglu.kernels.split import Split
from cuswiglu.selection.tuned import EMPTY, FORMAT, Key, Table, parse, serialise
from tests.helpers.tables import TABLES, entry, table

KEY = Key(True, 64, 96, 128, "k")
TEXT = serialise(Table("GPU", "hash", {KEY: entry("dual")}, {"dual": Rates(0.5, 2.0)}))
PATHS = [
    *[
        ("format",),
        ("gpu",),
        ("measured_with",),
        ("rates",),
        ("rates", "dual"),
        ("rates", "dual", 0),
    ],
    *[("choices",), ("choices", 0)],
    *[("choices", 0, field) for field in json.loads(TEXT)["choices"][0]],
]
WHOLE_NUMBERS = ("m", "n", "k", "raster_rows")


def changed(path, value):
    """TEXT with something else at `path`."""
    content = json.loads(TEXT)
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(content)


def removed(path):
    content = json.loads(TEXT)
    place = content
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return json.dumps(content)


@given(TABLES)
def test_what_is_written_is_read(made):
    assert parse(serialise(made)) == made


def test_an_empty_table_is_written_and_read():
    assert parse(serialise(EMPTY)) == EMPTY


def test_a_table_is_written_with_a_line_for_each_choice():
    """So that a change of the packaged one can be reviewed."""
    choices = {Key(True, 64 * i, 96, 128, "k"): entry("dual") for i in range(1, 9)}
    lines = serialise(table(choices, kernels="hash")).splitlines()
    assert sum('"variant"' in line for line in lines) == len(choices)


def test_the_order_of_choices_does_not_matter():
    choices = [(Key(True, m, n, 128, "k"), entry()) for m in (64, 128) for n in (96, 8)]
    assert serialise(table(choices, kernels="hash")) == serialise(
        table(reversed(choices), kernels="hash")
    )


# The format before

OLD = """{"format": 1, "gpu": "GPU", "measured_with": "hash", "rates": {"dual": [0.5, 2.0]},
 "choices": [
  {"gated": true, "m": 64, "n": 96, "k": 128, "major": "k",
   "variant": "dual", "raster_rows": 7, "us": 12.34},
  {"gated": false, "m": 8, "n": 96, "k": 128, "major": "n",
   "variant": "decode-plain_8", "raster_rows": 1, "us": 3.5, "split": [16, 2, 1]}]}"""


def test_a_table_of_the_format_before_was_measured_in_bf16():
    choices = {
        KEY: entry("dual"),
        Key(False, 8, 96, 128, "n"): entry("decode-plain_8", 1, 3.5, Split(16, 2, 1)),
    }
    assert parse(OLD) == Table("GPU", "hash", choices, {"dual": Rates(0.5, 2.0)})
    assert {key.elements for key in choices} == {("bfloat16",) * 3}


def test_a_table_of_the_format_before_is_written_in_todays():
    assert json.loads(serialise(parse(OLD)))["format"] == FORMAT
    assert parse(serialise(parse(OLD))) == parse(OLD)


@pytest.mark.parametrize("field", ["major", "m", "variant"])
def test_a_part_that_is_missing_in_the_format_before_is_a_value_error(field):
    with pytest.raises(ValueError, match="it is damaged"):
        parse(OLD.replace(f'"{field}"', '"another"'))


# Damage


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"text"', "{}", TEXT[:-9]])
def test_what_is_no_table_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse(text)


def test_very_deep_json_is_a_value_error():
    with pytest.raises(ValueError):
        parse("[" * 200_000)


@pytest.mark.parametrize("number", [0, FORMAT + 1, "1", None])
def test_another_format_is_a_value_error_that_says_which_is_read(number):
    with pytest.raises(ValueError, match=f"format {number}, this version reads {FORMAT}"):
        parse(changed(("format",), number))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_a_missing_part_is_a_value_error(path):
    if path == ("choices", 0):
        assert parse(removed(path)).choices == {}
    elif path == ("rates", "dual"):
        assert parse(removed(path)).rates == {}
    else:
        with pytest.raises(ValueError):
            parse(removed(path))


@given(
    st.sampled_from(PATHS),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text()
        | st.floats(allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
)  # fmt: skip
def test_whatever_stands_in_a_part_it_is_a_table_or_a_value_error(path, value):
    try:
        found = parse(changed(path, value))
    except ValueError:
        return
    assert isinstance(found, Table)
    assert all(chosen.raster_rows >= 1 for chosen in found.choices.values())


@pytest.mark.parametrize("rows", [0, -1, 0.5])
def test_raster_rows_below_one_are_refused(rows):
    """The kernels divide by them."""
    with pytest.raises(ValueError, match="raster_rows must be from 1 to"):
        parse(changed(("choices", 0, "raster_rows"), rows))


@pytest.mark.parametrize("rows", [2**31, 2**32, 10**30])
def test_raster_rows_beyond_32_bits_are_refused(rows):
    with pytest.raises(ValueError):
        parse(changed(("choices", 0, "raster_rows"), rows))


@pytest.mark.parametrize("field", WHOLE_NUMBERS)
def test_an_infinite_size_is_a_value_error(field):
    with pytest.raises(ValueError):
        parse(changed(("choices", 0, field), float("inf")))


@pytest.mark.parametrize("path", [("choices", 0, "us"), ("rates", "dual", 0)])
def test_a_time_beyond_floating_point_is_a_value_error(path):
    with pytest.raises(ValueError):
        parse(changed(path, 10**400))
