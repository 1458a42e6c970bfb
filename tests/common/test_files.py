"""Files are written whole or not at all, for their owner alone; every writer goes this way."""

from __future__ import annotations

import errno
import os
import resource
import stat
import tempfile

import pytest

from cuswiglu.bench import record as records
from cuswiglu.check import report
from cuswiglu.common import files
from cuswiglu.selection import tuned
from tests.helpers.bench_records import record
from tests.helpers.tables import table

WRITERS = {
    "bytes": lambda path: files.atomic_write(path, b"new" * 1000),
    "a tuned table": lambda path: tuned.write(table(gpu="g" * 1000), path),
    "a benchmark's record": lambda path: records.save(record(), path),
    "a check's report": lambda path: report.save(report.Report(0, "s" * 1000, {}), path),
}
BY_WRITER = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "kept.json"
    file.write_text("old")
    return file


def assert_untouched(path):
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == [path.name]


@BY_WRITER
def test_a_file_is_its_owners_alone_whatever_was_there(path, write):
    path.chmod(0o644)
    before = os.umask(0)
    try:
        write(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() != "old"
    assert os.listdir(path.parent) == [path.name]


@BY_WRITER
def test_a_write_that_stops_half_way_leaves_the_file_before(path, write):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, before[1]))  # bytes: as a full disk
    try:
        with pytest.raises(OSError, match=r"kept\.json cannot be written \(File too large\)"):
            write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_untouched(path)


@BY_WRITER
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_write_that_is_interrupted_leaves_the_file_before(monkeypatch, path, write, error):
    def stop(*paths):
        raise error

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(error):
        write(path)
    assert_untouched(path)


@BY_WRITER
def test_a_link_is_replaced_and_what_it_led_to_stays(path, write):
    link = path.with_name("link.json")
    link.symlink_to(path)
    write(link)
    assert not link.is_symlink()
    assert path.read_text() == "old"


def test_a_folder_is_made_for_its_owner_alone(tmp_path):
    path = tmp_path / "cache" / "cuswiglu" / "tuned.json"
    files.make_folder(path)
    files.make_folder(path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == []


def test_a_folder_that_cannot_be_made_is_told_with_the_file(tmp_path):
    (tmp_path / "cache").write_text("a file")
    path = tmp_path / "cache" / "tuned.json"
    with pytest.raises(OSError, match=r"tuned\.json cannot be written \((File exists|Not a dir)"):
        files.make_folder(path)


@pytest.mark.parametrize("name", ["atomic_write", "make_folder"])
def test_a_read_only_folder_is_told_with_the_file(monkeypatch, path, name):
    def read_only(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system", "/.kept.json.x1")

    monkeypatch.setattr(tempfile, "mkstemp", read_only)
    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    arguments = (path, b"new")[: 1 + (name == "atomic_write")]
    with pytest.raises(OSError) as caught:
        getattr(files, name)(*arguments)
    assert str(caught.value) == f"{path} cannot be written (Read-only file system)"
    assert_untouched(path)
