"""`cuswiglu info`: what a bug report needs, and nothing that names a person."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import cuswiglu
from cuswiglu import environment
from cuswiglu.arrays import allocate
from cuswiglu.cli import main
from cuswiglu.environment import Gpu, redact_paths
from cuswiglu.kernels import manifest
from cuswiglu.runtime import driver
from cuswiglu.selection import select, tuned
from tests.helpers.tables import H200, entry, table

GPU = Gpu(H200.name, "9.0", H200.multiprocessors)
KEY = tuned.Key(True, 512, 1536, 576, "k")


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """No GPU, and none of this machine's variables."""
    monkeypatch.setattr(driver, "installed", lambda: False)
    for name in (*environment.VARIABLES, *environment.PATH_VARIABLES):
        if name != "XDG_CACHE_HOME":  # where the tests' tables are
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def h200(monkeypatch):
    monkeypatch.setattr(environment, "_gpus", lambda: (H200.driver, [GPU], ""))


@pytest.fixture
def report(capsys):
    """report(): what `cuswiglu info --json` prints, read."""

    def read():
        assert main(["info", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return read


def test_it_has_all_that_a_bug_report_needs(report):
    assert set(report()) == {
        *("cuswiglu", "python", "platform", "packages", "variables"),
        *("driver", "driver_cuda", "gpus"),
        *("kernels", "kernel_bytes", "fingerprint", "sources", "toolchain"),
        *("tables", "backend", "reason", "warnings"),
    }


def test_kernels_have_a_fingerprint_and_their_sources_another(report, monkeypatch):
    found = report()
    assert found["fingerprint"] == select.fingerprint_of(cuswiglu.variants())
    assert len(found["sources"]) == 16
    assert found["sources"] != found["fingerprint"]
    changed = json.loads(json.dumps(manifest.read_manifest()))
    changed["variants"][0]["source_sha256"] = "0" * 64
    monkeypatch.setattr(manifest, "read_manifest", lambda: changed)
    after = report()
    assert after["sources"] != found["sources"]
    assert after["fingerprint"] == found["fingerprint"]


def test_gpus_and_driver(report, h200, monkeypatch, tmp_path):
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(environment, "DRIVER_VERSION", tmp_path / "version")
    found = report()
    assert found["driver"] == "580.95.05"
    assert found["driver_cuda"] == H200.driver
    assert found["gpus"] == [
        {"name": H200.name, "capability": "9.0", "multiprocessors": H200.multiprocessors}
    ]


# Tuned tables


def by_owner(found):
    return {row.pop("whose"): row for row in found["tables"]}


def test_tables_that_count(report, h200, tables):
    tables(user=table({KEY: entry()}), packaged=table({}, kernels="others"))
    rows = by_owner(report())
    assert rows["user"] == {
        "gpu": H200.name,
        "measured_with": select.measured_with(H200),
        "choices": 1,
        "unused": "",
    }
    assert (rows["packaged"]["choices"], rows["packaged"]["unused"]) == (0, "")


def test_a_users_table_of_other_kernels_does_not_count(report, h200, tables):
    tables(user=table({KEY: entry()}, kernels="kernels 0123, driver 12.9"))
    row = by_owner(report())["user"]
    assert row["unused"] == (
        f"it is for other kernels or another driver than {select.measured_with(H200)}"
    )
    assert row["measured_with"] == "kernels 0123, driver 12.9"


def test_a_table_of_another_gpu_does_not_count(report, h200, tables):
    tables(packaged=table({KEY: entry()}, gpu="NVIDIA H100"))
    rows = by_owner(report())
    assert rows["packaged"]["unused"] == f"it is for another GPU than {H200.name}"
    assert rows["user"]["unused"] == "there is none, or it cannot be read"


def test_without_a_gpu_no_table_counts(report, tables):
    tables(packaged=table({KEY: entry()}))
    assert by_owner(report())["packaged"]["unused"] == "there is no GPU here"


# Variables and paths


def test_variables_that_matter_are_told(report, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("SECRET_TOKEN", "1234")
    assert report()["variables"] == {
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_LAUNCH_BLOCKING": "1",
        "XDG_CACHE_HOME": "set",
    }


def test_of_variables_that_hold_paths_only_that_they_are_set(report, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/home/someone/cuda")
    found = report()
    assert found["variables"]["CUDA_HOME"] == "set"
    assert "someone" not in json.dumps(found)


def test_no_path_of_a_person_is_told(capsys, report, monkeypatch):
    someone = Path("/data/someone/env/lib/cuswiglu")

    def missing():
        raise manifest.KernelsUnavailableError(f"the manifest {someone}/cubins/a.json is missing")

    monkeypatch.setattr(manifest, "read_manifest", missing)
    monkeypatch.setattr(environment, "_gpus", lambda: (H200.driver, [GPU], ""))
    monkeypatch.setattr(allocate, "cupy_module", lambda: None)  # it can be imported
    monkeypatch.setenv(
        "XLA_FLAGS", "--xla_dump_to=/home/someone/dump/now --xla_gpu_autotune_level=4"
    )
    found = report()
    assert "the manifest .../a.json is missing" in found["reason"]
    assert found["variables"]["XLA_FLAGS"] == "--xla_dump_to=.../now --xla_gpu_autotune_level=4"
    assert found["fingerprint"] == found["sources"] == ""
    assert main(["info"]) == 0
    assert "someone" not in json.dumps(found) + capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/some one/x", "~/x"),
        ("/opt/a b/env/lib/python3/x.py: no", ".../lib/python3/x.py: no"),
        ("'/scratch/me/lib/x.so'", "'.../x.so'"),
        ("see https://docs.nvidia.com/cuda/index.html", None),
        ("gate/up, 1/2, and/or", None),
        ("/tmp", None),
    ],
)
def test_folders_are_left_out_of_paths(monkeypatch, text, expected):
    monkeypatch.setenv("HOME", "/home/some one")
    monkeypatch.setattr(sys, "prefix", "/opt/a b/env")
    assert redact_paths(text) == (expected or text)
