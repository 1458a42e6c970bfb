"""Calls as hypothesis draws them: shapes, strides, offsets, dtypes, variants, `out` anywhere.

Every array lies in a buffer between guard bands, NaN like all that lies between its elements: what
is read outside of it makes the result NaN, what is written outside is seen.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

import cuswiglu
from tests.helpers.fp64 import silu

BF16 = np.dtype(ml_dtypes.bfloat16)
GUARD = 2048  # elements
FILL = 0x7FB5  # NaN, with bits that nobody writes
OTHER_DTYPES = ("float32", "float16", "int16", "uint16", "float64")
#: What a call is said to raise.
DOCUMENTED = (TypeError, ValueError)


@dataclass(frozen=True)
class Laid:
    """How an array lies in its buffer; strides and offset in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    dtype: str = BF16.name

    def places(self):
        """Where each element is, counted from the buffer's first."""
        lowest = sum(min(0, stride * (n - 1)) for n, stride in self._axes() if n)
        at = np.full((), GUARD + self.offset - lowest)
        for extent, stride in self._axes():
            at = at[..., None] + np.arange(extent) * stride
        return at

    def first(self):
        """Where the element with all indices 0 is."""
        return int(
            replace(self, shape=tuple(min(n, 1) or 1 for n in self.shape)).places().flat[0]
        ) - sum(min(0, stride * (n - 1)) for n, stride in self._axes() if n)

    def _axes(self):
        return list(zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class Call:
    """One call of swiglu, or of mlp where there is `down`.

    `out_in_x` puts out in x's buffer; `granularity` packs gate and up; `seed` is of the values.
    """

    x: Laid
    gate: Laid
    up: Laid
    down: Laid | None
    out: Laid | None
    out_in_x: bool
    granularity: int | None
    variant: str
    seed: int


# Strategies


def seldom(times):
    """True once in so many times."""
    return st.integers(1, times).map(lambda number: number == times)


@st.composite
def laid(draw, shape, odd):
    """A layout: axes in some order, with padding; where `odd`, also reversed or of stride 0."""
    order = list(range(len(shape)))
    if odd and draw(seldom(6)):
        order = draw(st.permutations(order))
    strides, step = [0] * len(shape), 1
    padding = st.sampled_from([0, 0, 0, 1, 4, 8, 24])
    for number, axis in enumerate(reversed(order)):
        strides[axis] = step
        if odd and draw(seldom(40)):
            strides[axis] = draw(st.sampled_from([0, -step, 2 * step, step - 1]))
        step = max(1, step * shape[axis])
        if number == 0 or (odd and draw(seldom(6))):
            step += draw(padding)
    return Laid(tuple(shape), tuple(strides), draw(st.sampled_from([0, 0, 0, 1, 2, 4, 8, 12])))


@st.composite
def weight(draw, rows, columns, odd):
    """A weight along either of its dimensions."""
    if draw(st.booleans()):
        return draw(laid((rows, columns), odd))
    turned = draw(laid((columns, rows), odd))
    return replace(turned, shape=turned.shape[::-1], strides=turned.strides[::-1])


@st.composite
def calls(draw, variants, most, *, odd):
    """Calls with dimensions up to `most`; where not `odd`, none that may be refused."""
    size = st.one_of(
        st.integers(1, min(most, 20)),
        st.integers(1, most // 8).map(lambda eighth: 8 * eighth),
        st.integers(1, most),
    )
    k, n, k_out = draw(size), draw(size), draw(size)
    leading = draw(st.lists(st.integers(0, 5), max_size=3) | size.map(lambda m: [m]))
    while math.prod(leading) > most:
        leading.pop()
    wrong = seldom(40).map(lambda is_wrong: int(is_wrong and odd))
    x = draw(laid((*leading, k + draw(wrong)), odd))
    gate, up = draw(weight(k, n, odd)), draw(weight(k, n + draw(wrong), odd))
    down = draw(weight(n + draw(wrong), k_out, odd)) if draw(st.booleans()) else None
    last = n if down is None else k_out
    out, in_x = None, False
    if draw(st.booleans()):
        out = draw(laid((*leading, last + draw(wrong)), odd))
        in_x = draw(st.booleans()) and odd
        if in_x:
            out = replace(out, offset=draw(st.integers(0, 2 * most)))
    call = Call(
        x, gate, up, down, out, in_x, None, draw(st.sampled_from(variants)), draw(st.integers(0, 9))
    )
    if odd and draw(seldom(20)):
        name = draw(st.sampled_from(["x", "gate", "up"]))
        dtype = draw(st.sampled_from(OTHER_DTYPES))
        call = replace(call, **{name: replace(getattr(call, name), dtype=dtype)})
    if draw(seldom(6)) and (odd or n % 8 == 0):
        call = replace(call, granularity=draw(st.sampled_from([8, 1])))
    return call


# What a call does


class Placed:
    """The arrays of a call, on the device of an array library, and their values on the host."""

    def __init__(self, xp, call):
        self._xp, self.arrays = xp, {}
        rng = np.random.default_rng(call.seed)
        named = {name: getattr(call, name) for name in ("x", "gate", "up", "down", "out")}
        named = {name: one for name, one in named.items() if one is not None}
        homes = {name: "x" if name == "out" and call.out_in_x else name for name in named}
        ends = {}
        for name, one in named.items():
            last = int(one.places().max(initial=one.first()))
            ends[homes[name]] = max(ends.get(homes[name], 0), last + 1 + GUARD)
        self.before = {home: np.full(end, FILL, np.uint16) for home, end in ends.items()}
        for name, one in named.items():
            if name != "out":
                values = rng.standard_normal(one.shape) * (
                    1 if name == "x" else one.shape[0] ** -0.5
                )
                self.before[homes[name]][one.places()] = values.astype(BF16).view(np.uint16)
        self._buffers = {home: xp.array(buffer) for home, buffer in self.before.items()}
        self._out = named.get("out"), homes.get("out")
        for name, one in named.items():
            if one.dtype != BF16.name:
                self.arrays[name] = xp.zeros(one.shape, one.dtype)
                continue
            base = self._buffers[homes[name]].view(BF16)[one.first() :]
            strides = tuple(2 * stride for stride in one.strides)
            self.arrays[name] = xp.lib.stride_tricks.as_strided(base, one.shape, strides)
        self.values = {
            name: self.before[homes[name]][one.places()].view(BF16).astype(np.float64)
            for name, one in named.items()
            if name != "out"
        }

    def host(self, array):
        return array if self._xp is np else array.get()

    def found(self):
        """What is in out."""
        one, home = self._out
        return self.host(self._buffers[home])[one.places()].view(BF16)

    def assert_untouched(self, *, but_out):
        """No bit has changed, but of out's elements."""
        for home, before in self.before.items():
            after, expected = self.host(self._buffers[home]), before.copy()
            one, out_home = self._out
            if but_out and one is not None and out_home == home:
                expected[one.places()] = after[one.places()]
            changed = np.flatnonzero(after != expected)
            assert not len(changed), f"{home}: written at {changed[:9] - GUARD}"


def do(xp, call):
    """Call it: right and nothing else written, or a documented error and nothing written.

    Gives the error, or None.
    """
    placed = Placed(xp, call)
    given = dict(placed.arrays)
    x, gate, up = (given.pop(name) for name in ("x", "gate", "up"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the portable path
        try:
            if call.granularity is not None:
                gate, up = cuswiglu.pack(gate, up, granularity=call.granularity), None
            options = {"out": given.get("out"), "variant": call.variant}
            if call.down is None:
                result = cuswiglu.swiglu(x, gate, up, **options)
            else:
                result = cuswiglu.mlp(x, gate, up, given["down"], **options)
        except DOCUMENTED as error:
            placed.assert_untouched(but_out=False)
            return error
    assert call.out is None or result is given["out"]
    placed.assert_untouched(but_out=True)
    assert_right(placed.host(result) if call.out is None else placed.found(), placed.values)
    return None


def assert_right(found, values):
    """One rounding of the result, one of the intermediate, and FP32 sums near zero."""
    x, gate, up = (values[name] for name in ("x", "gate", "up"))
    expected = silu(x @ gate) * (x @ up)
    room = 2**-8 * np.abs(expected)
    if "down" in values:
        hidden = expected.astype(BF16).astype(np.float64)
        expected = hidden @ values["down"]
        room = 2**-8 * np.abs(expected) + 2**-8 * (np.abs(hidden) @ np.abs(values["down"]))
    assert found.shape == expected.shape
    if not expected.size:
        return
    error = np.abs(found.astype(np.float64) - expected)
    assert np.isfinite(error).all(), "an element was not written, or read from outside"
    excess = error - room - 1e-4 * np.sqrt(np.mean(expected**2)) - 1e-30
    assert excess.max() <= 0, f"off by {excess.max():.3g} beyond the tolerance"


def overlaps(call):
    """Whether out shares an element with x."""
    if call.out is None or not call.out_in_x or call.x.dtype != BF16.name:
        return False
    return bool(np.intersect1d(call.out.places(), call.x.places()).size)
