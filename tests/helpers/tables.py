"""Tuned tables for tests: of small content, and anything that hypothesis thinks of."""

from __future__ import annotations

from hypothesis import strategies as st

from cuswiglu.common.device import DeviceInfo
from cuswiglu.kernels.estimate import Rates
from cuswiglu.kernels.split import Split
from cuswiglu.selection import select, tuned
from cuswiglu.selection.tuned import Entry, Key, Table

H200 = DeviceInfo("NVIDIA H200", (9, 0), 132, "12.9")  # as the fake driver says
#: What a rate or a time may be.
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SIZES = st.integers(1, 10**9)
ELEMENTS = st.tuples(*[st.sampled_from(["bfloat16", "float16", "float8_e4m3fn"])] * 3)
KEYS = st.builds(Key, st.booleans(), SIZES, SIZES, SIZES, st.text(max_size=3), ELEMENTS)
SPLITS = st.builds(Split, SIZES, SIZES, SIZES)
ENTRIES = st.builds(Entry, st.text(), SIZES, NUMBERS, st.none() | SPLITS)
TABLES = st.builds(
    Table,
    st.text(),
    st.text(),
    st.dictionaries(KEYS, ENTRIES, max_size=5),
    st.dictionaries(st.text(), st.builds(Rates, NUMBERS, NUMBERS), max_size=5),
)


def entry(variant="cublas", raster_rows=7, us=12.34, split=None):
    return Entry(variant, raster_rows, us, split)


def table(choices=(), gpu=H200.name, kernels=None, rates=()):
    """A table of this GPU and of the kernels that are compiled, unless said otherwise."""
    kernels = select.measured_with(H200) if kernels is None else kernels
    return Table(gpu, kernels, dict(choices), dict(rates))


def table_for(problem, *entry_arguments, **changes):
    """A table with one choice, for a problem."""
    return table({tuned.Key.of(problem): entry(*entry_arguments)}, **changes)
