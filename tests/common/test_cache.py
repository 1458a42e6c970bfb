"""The bounded cache."""

from __future__ import annotations

import gc
import weakref

from cuswiglu.common.cache import Cache
from tests.helpers.fake_driver import run_in_threads


class Value:
    """Anything that a weak reference can watch."""


def test_what_was_used_least_recently_is_forgotten():
    cache = Cache(3)
    for key in "abc":
        cache.put(key, key.upper())
    assert cache.get("a") == "A"  # now the most recently used
    cache.put("d", "D")  # pushes out b
    assert [cache.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    assert len(cache) == 3


def test_a_key_has_its_newest_value():
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("a", 2)
    assert cache.get("a") == 2
    assert len(cache) == 1


def test_the_value_used_last_is_found_again():
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert [cache.get(key) for key in "bbaab"] == [2, 2, 1, 1, 2]


def test_a_forgotten_value_lives_on_for_whoever_holds_it():
    cache, held = Cache(1), Value()
    cache.put("a", held)
    watch = weakref.ref(held)
    cache.put("b", Value())
    gc.collect()
    assert watch() is held
    del held
    gc.collect()
    assert watch() is None


def test_a_cleared_cache_has_forgotten_all():
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.clear()
    assert (cache.get("a"), cache.get("b"), cache.values()) == (None, None, [])


def test_threads_get_what_belongs_to_their_key():
    cache = Cache(4)

    def work(number):
        for turn in range(2000):
            key = (number + turn) % 8
            found = cache.get(key)
            assert found in (None, -key)
            if found is None:
                cache.put(key, -key)

    run_in_threads(work)
    assert len(cache) == 4
