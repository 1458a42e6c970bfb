"""A bounded cache that several threads may use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """LRU cache of at most `size` values, safe in several threads.

    A value that is evicted lives on for whoever still holds it.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()
        # The last value used: one tuple, read and written in one step, so that a hit needs no lock.
        self._last: tuple[Key, Value] | None = None

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """Return the value of a key and make it the most recently used; None if it is not here."""
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
                self._last = key, found
        return found

    def values(self) -> list[Value]:
        """Return all values, the most recently used one last."""
        with self._lock:
            return list(self._values.values())

    def put(self, key: Key, value: Value) -> None:
        """Store a value as the most recently used, and evict the least recently used if full."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            self._last = key, value
            while len(self._values) > self._size:
                self._values.popitem(last=False)
