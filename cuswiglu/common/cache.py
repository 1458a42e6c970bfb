"""A bounded cache for several threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """Keeps `size` values, and forgets the one that was used least recently.

    A value that is forgotten lives on for whoever still holds it.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()
        # Read and written whole, so that calls of one kind after another need no lock.
        self._last: tuple[Key, Value] | None = None

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used, or None."""
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
        """All values, the most recently used one last."""
        with self._lock:
            return list(self._values.values())

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, in the place of the key's old one if there is one."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            self._last = key, value
            while len(self._values) > self._size:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
            self._last = None
