"""Files are data: whatever they hold, nothing in them is unpickled, evaluated or run."""

from __future__ import annotations

import io
import json
import pickle
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cuswiglu.bench import record
from cuswiglu.check import report
from cuswiglu.kernels import manifest
from cuswiglu.models import load_gguf, load_safetensors
from cuswiglu.selection import tuned
from tests.helpers.tables import entry, table

#: What the interpreter tells of: code made or run, other programs started.
RUNNING = {
    *("compile", "exec", "code.__new__", "function.__new__", "marshal.loads", "import"),
    *("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen"),
    *("ctypes.dlopen", "os.fork"),
}
_heard: list[str] | None = None


def _listen(event, arguments):
    if _heard is not None and event in RUNNING:
        _heard.append(f"{event} {arguments!r:.80}")


@pytest.fixture(scope="module", autouse=True)
def _hook():
    sys.addaudithook(_listen)  # for good: hooks cannot be taken away


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return exec, (f"open({self.path!r}, 'w').close()",)


def as_torch_saves(payload):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(payload))
    return file.getvalue()


def as_numpy_saves(payload):
    file = io.BytesIO()
    np.save(file, np.array([payload], object), allow_pickle=True)
    return file.getvalue()


HOSTILE = {
    "pickle": pickle.dumps,
    "old pickle": lambda payload: pickle.dumps(payload, protocol=0),
    "torch's checkpoint": as_torch_saves,
    "NumPy's file": as_numpy_saves,
    "Python": lambda payload: f"open({payload.path!r}, 'w').close()\n".encode(),
    "Python in JSON": lambda payload: json.dumps(
        {"format": f"__import__('os').mknod({payload.path!r})", "weight_map": {"!!python": "x"}}
    ).encode(),
}


def _manifest(path):
    manifest.read_manifest.cache_clear()
    return manifest.read_manifest(path.parent)


def _configuration(path):
    file = path.with_name("model.safetensors")
    names = ("gate", "up", "down")
    weights = {f"layers.0.mlp.{name}_proj.weight": np.eye(8, dtype=np.float32) for name in names}
    save_file(weights, file)
    return load_safetensors(file)


#: Every reader of files, and the name of a file that it reads.
READERS = {
    "safetensors": (load_safetensors, "some.safetensors"),
    "index": (load_safetensors, "model.safetensors.index.json"),
    "config": (_configuration, "config.json"),
    "gguf": (load_gguf, "some.gguf"),
    "tuned table": (tuned.read, "tuned.json"),
    "benchmark's record": (record.load, "paper.json"),
    "check's report": (report.load, "check.json"),
    "manifest": (_manifest, "manifest.json"),
}


def attempt(read, path):
    """Read a file that may be refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(path)
        except (ValueError, manifest.KernelsUnavailableError):
            return


def heard(work):
    """What the interpreter ran meanwhile."""
    global _heard
    _heard = []
    try:
        work()
        return list(_heard)
    finally:
        _heard = None


def test_what_is_listened_for_is_heard(tmp_path):
    made = tmp_path / "made"
    hostile = pickle.dumps(Payload(made))
    assert any("pickle.find_class" in one for one in heard(lambda: pickle.loads(hostile)))
    assert made.exists()


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_file_is_only_read(tmp_path, reader, kind):
    read, name = READERS[reader]
    made, path = tmp_path / "made", tmp_path / name
    path.write_bytes(HOSTILE[kind](Payload(made)))
    attempt(read, path)  # what it imports is imported now
    assert heard(lambda: attempt(read, path)) == []
    assert not made.exists()


def test_names_in_a_tuned_table_are_only_looked_up(tables, tmp_path):
    made = tmp_path / "made"
    name = f"__import__('pathlib').Path({str(made)!r}).touch()"
    path = tables(user=table({tuned.Key(True, 64, 96, 128, "k"): entry(name)}, gpu=name)).user
    assert heard(lambda: tuned.read(path)) == []
    assert tuned.read(path).gpu == name
    assert not Path(made).exists()
