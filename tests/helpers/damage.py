"""Damage to a small valid file, as hypothesis thinks of it; limits on what reading may take."""

from __future__ import annotations

import contextlib
import json
import signal
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hypothesis import strategies as st

SECONDS = 20
MOST_BYTES = 64 << 20  # a reader may allocate, of files of kilobytes

#: Numbers that lie: at the edges of what types hold, and of what small files have.
_EDGES = [0, 1, 2, 3, 7, 8, 9, 31, 32, 255, 2**16, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40]
_EDGES += [2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1]

Damage = Callable[[bytes], bytes]


def _written(place: int, size: int, number: int) -> Damage:
    part = (number % 256**size).to_bytes(size, "little")
    return lambda data: data[:place] + part + data[place + size :]


def damages(length: int) -> st.SearchStrategy[Damage]:
    """Ways to damage a file whose first `length` bytes matter most.

    A number or bytes written over it, a part left out, doubled, or cut off behind a place.
    """
    place = st.integers(0, length)
    size = st.sampled_from([1, 2, 4, 8])
    number = st.sampled_from(_EDGES) | st.integers(0, 2**64 - 1)

    def cut(at: int) -> Damage:
        return lambda data: data[:at]

    def without(at: int, count: int) -> Damage:
        return lambda data: data[:at] + data[at + count :]

    def doubled(at: int, count: int) -> Damage:
        return lambda data: data[: at + count] + data[at:]

    def replaced(at: int, part: bytes) -> Damage:
        return lambda data: data[:at] + part + data[at + len(part) :]

    few = st.integers(1, 40)
    return st.one_of(
        st.builds(_written, place, size, number),
        st.builds(replaced, place, st.binary(min_size=1, max_size=8)),
        st.builds(cut, place),
        st.builds(without, place, few),
        st.builds(doubled, place, few),
    )


def damaged(data: bytes, made: Iterable[Damage]) -> bytes:
    """A file's bytes with one damage after the other."""
    for damage in made:
        data = damage(data)
    return data


#: Anything that JSON can hold, and much that no header means.
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([*_EDGES, -1, -(2**63), 2**70, 1.5, 1e300])
    | st.sampled_from(
        ["", "BF16", "F32", "I64", "F8_E4M3", "silu", "relu", "..", "/", "\0", "\ud800"]
    )
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON document."""
    yield path
    if isinstance(content, (dict, list)):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from places(value, (*path, key))


def with_other(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of a JSON document with something else at a place."""
    if not path:
        return value
    copy = json.loads(json.dumps(content))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copy


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fails if what is done inside takes too long, or holds much more than the file has."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    timer = signal.setitimer(signal.ITIMER_REAL, SECONDS)  # pytest-timeout has one too
    tracemalloc.start()
    try:
        yield
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)
    assert most < MOST_BYTES, f"{most} bytes were allocated"
