"""The script that runs compute-sanitizer: what it asks for, and what it calls clean."""

from __future__ import annotations

import pytest

from cuswiglu.kernels.manifest import variants
from tests.gpu import sanitize


@pytest.fixture
def sanitizer(tmp_path, monkeypatch):
    """sanitizer(text, status): a compute-sanitizer that says this; gives the file of its calls.

    Of the launch that writes too far it says `of_overrun`.
    """

    def make(text, status=0, of_overrun=OVERRUN):
        calls, program = tmp_path / "calls", tmp_path / "compute-sanitizer"
        (tmp_path / "text").write_text(text)
        (tmp_path / "overrun").write_text(of_overrun)
        program.write_text(
            f'#!/bin/sh\ncase "$@" in *--overrun) cat {tmp_path / "overrun"}; exit 9;; esac\n'
            f'echo "$@" >> {calls}\ncat {tmp_path / "text"}\nexit {status}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return calls

    return make


CLEAN = "========= COMPUTE-SANITIZER\n12 launches\n========= ERROR SUMMARY: 0 errors\n"
OVERRUN = "========= Invalid __global__ write of size 2 bytes\n========= ERROR SUMMARY: 64 errors\n"
NO_HAZARDS = CLEAN.replace("ERROR SUMMARY: 0 errors", "RACECHECK SUMMARY: 0 hazards displayed")


def test_every_tool_runs_over_every_family(sanitizer, capsys):
    calls = sanitizer(CLEAN)
    assert sanitize.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "clean"
    asked = [call.split() for call in calls.read_text().splitlines()]
    expected = {(tool, kernel.family) for tool in sanitize.TOOLS for kernel in variants()}
    assert {(call[1], call[-1]) for call in asked} == expected
    assert len(asked) == len(lines) - 1 == len(expected)


def test_a_sanitizer_that_does_not_see_a_write_too_far_is_not_trusted(sanitizer, capsys):
    sanitizer(CLEAN, of_overrun=CLEAN)
    assert sanitize.main([]) == 1
    assert "does not see a kernel that writes too far" in capsys.readouterr().out


def test_every_entry_has_one_of_the_names_that_are_checked():
    for kernel in variants():
        for entry in kernel.entries:
            assert any(name in entry.name for name in sanitize.OURS), entry


@pytest.mark.parametrize("text", [CLEAN, NO_HAZARDS])
def test_nothing_found_is_clean(sanitizer, text):
    sanitizer(text)
    result = sanitize.sanitize("memcheck", ["dual"])
    assert (result.clean, result.launches) == (True, 12)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (CLEAN.replace(": 0 err", ": 3 err"), 9, "3 found"),
        (CLEAN.replace(": 0 err", ": 3 err"), 0, "3 found"),
        (NO_HAZARDS.replace("0 hazards", "2 hazards"), 0, "2 found"),
        (CLEAN, 1, "nothing found"),
        (CLEAN.replace("12 launches\n", ""), 0, "nothing was launched"),
        (CLEAN.replace("12 launches", "0 launches"), 0, "nothing was launched"),
        ("12 launches\nSegmentation fault\n", 139, "no summary (exit status 139)"),
    ],
)
def test_anything_else_is_not_clean(sanitizer, tmp_path, capsys, text, status, said):
    sanitizer(text, status)
    logs = tmp_path / "logs"
    arguments = ["--tool", "memcheck", "--family", "dual", "--logs", str(logs)]
    assert sanitize.main(arguments) == 1
    out = capsys.readouterr().out
    assert f"FAIL: {said}" in out
    assert out.endswith("FAIL\n")
    assert (logs / "memcheck_dual.txt").read_text() == text


def test_a_run_that_does_not_end_is_not_clean(sanitizer, tmp_path):
    sanitizer("")
    (tmp_path / "compute-sanitizer").write_text("#!/bin/sh\nexec sleep 60\n")
    result = sanitize.sanitize("racecheck", ["dual"], limit_s=0.2)
    assert (result.clean, result.said) == (False, "not done after 0.2 s")


def test_without_compute_sanitizer_it_says_where_it_comes_from(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match="comes with the CUDA toolkit"):
        sanitize.main(["--tool", "memcheck", "--family", "dual"])
