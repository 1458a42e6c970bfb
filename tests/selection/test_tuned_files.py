"""Tuned tables as files: where they are, what is ignored, and how one is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from cuswiglu.selection import select, tuned
from cuswiglu.selection.tuned import EMPTY, MAX_BYTES, Key, read, serialise, write
from tests.helpers.problems import problem
from tests.helpers.tables import H200, TABLES, entry, table

KEY = Key(True, 64, 96, 128, "k")


@pytest.fixture
def small():
    return table({KEY: entry("dual")}, kernels="hash")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "tuned.json"


# Where


def test_the_users_table_is_in_the_cache_of_xdg(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/somebody")
    assert tuned.cache_path() == Path("/var/cache/somebody/cuswiglu/tuned.json")


@pytest.mark.parametrize("value", [None, ""])
def test_without_xdg_the_users_table_is_in_the_home_folder(monkeypatch, value):
    monkeypatch.delenv("XDG_CACHE_HOME")
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert tuned.cache_path() == Path("/home/somebody/.cache/cuswiglu/tuned.json")


# What is ignored


def test_a_missing_table_is_empty_without_a_warning(path, recwarn):
    assert read(path) is EMPTY
    assert list(recwarn) == []


def _folder(path):
    path.mkdir()


BAD = {
    "empty": lambda path: path.write_text(""),
    "truncated": lambda path: path.write_text(serialise(table())[:-9]),
    "not text": lambda path: path.write_bytes(b"\xff\xfe\x00\x80"),
    "another format": lambda path: path.write_text(serialise(table()).replace(": 2", ": 99", 1)),
    "another program's": lambda path: path.write_text('{"name": "something"}'),
    "no raster": lambda path: path.write_text(serialise(table({KEY: entry("dual", 0)}))),
    "oversized": lambda path: path.write_text(serialise(table()) + " " * MAX_BYTES),
    "a folder": _folder,
}


@pytest.mark.parametrize("bad", BAD)
def test_a_table_that_cannot_be_used_is_ignored_with_a_warning(path, bad):
    path.parent.mkdir()
    BAD[bad](path)
    with pytest.warns(UserWarning, match="ignores the tuned table") as record:
        assert read(path) is EMPTY
    assert len(record) == 1
    for word in (str(path), "write it anew with `cuswiglu tune`"):
        assert word in str(record[0].message)


def test_a_table_as_large_as_may_be_is_read(path, small):
    path.parent.mkdir()
    path.write_text(serialise(small).ljust(MAX_BYTES))
    assert read(path) == small


@pytest.mark.parametrize("which", ["user", "packaged"])
def test_selection_goes_on_without_a_damaged_table_and_warns_once(tables, which):
    expected = select.select(problem(), H200)
    path = getattr(tables(**{which: "{"}), which)
    with pytest.warns(UserWarning, match="ignores the tuned table") as record:
        found = [select.select(problem(), H200) for _ in range(3)]
    assert found == [expected] * 3
    assert len(record) == 1
    assert str(path) in str(record[0].message)


def test_a_damaged_table_leaves_the_other_in_use(tables):
    packaged = table({tuned.Key.of(problem()): entry("cublas")})
    tables(user="{", packaged=packaged)
    with pytest.warns(UserWarning, match="ignores the tuned table"):
        assert select.select(problem(), H200).backend == "cublas"


# How one is written


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TABLES)
def test_what_is_written_is_read(path, made):
    write(made, path)
    assert read(path) == made


def test_folders_are_made_for_it(path, small):
    write(small, path.parent / "deeper" / "tuned.json")
    assert read(path.parent / "deeper" / "tuned.json") == small


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_its_owner_can_read_it(path, small, umask):
    before = os.umask(umask)
    try:
        write(small, path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_it_replaces_the_one_before_and_leaves_nothing_beside(path, small):
    write(EMPTY, path)
    write(small, path)
    assert read(path) == small
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("function", ["os.replace", "cuswiglu.selection.tuned.serialise"])
def test_a_failure_leaves_the_one_before_and_nothing_beside(monkeypatch, path, small, function):
    write(small, path)

    def fail(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(function, fail)
    with pytest.raises(OSError, match="no space left"):
        write(EMPTY, path)
    assert read(path) == small
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_sees_the_old_table_until_the_new_one_is_whole(monkeypatch, path, small):
    """It is renamed within one folder, complete."""
    write(EMPTY, path)
    seen = []
    replace = os.replace

    def watch(source, target):
        seen.append((read(path), read(Path(source)), Path(source).parent, Path(target)))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    write(small, path)
    assert seen == [(EMPTY, small, path.parent, path)]
