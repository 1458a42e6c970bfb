"""The stress script without a GPU: what it asks for, and what it calls right."""

from __future__ import annotations

import json
import mmap
import sys
import time

import ml_dtypes
import numpy as np
import pytest

import cuswiglu
from tests.gpu import leaks, stress, stress_pool, stress_processes, stressed
from tests.gpu.stress_processes import Ran
from tests.gpu.verdicts import Outcome, judged


@pytest.fixture
def parts(monkeypatch):
    """parts(a=outcome, b=...): these are all there are; gives the seconds that each was given."""

    def make(**outcomes):
        given = {}

        def part(name, outcome):
            def run(seconds):
                given[name] = seconds
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome

            return run

        shares = {"a": 0.75, "b": 0.25}
        made = {name: (shares.get(name, 0.0), part(name, one)) for name, one in outcomes.items()}
        monkeypatch.setattr(stress, "PARTS", made)
        return given

    return make


# The script


def test_a_line_for_each_part_and_a_last_word(parts, capsys):
    parts(a=Outcome(7, "calls", said="8 threads"), b=Outcome(12, "plans"))
    assert stress.main(["--minutes", "1"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["a", "7", "calls"]
    assert first.endswith("s  ok: 8 threads")
    assert second.split()[:3] == ["b", "12", "plans"]
    assert last == "ok"


def test_the_minutes_are_shared_among_the_parts_that_run(parts):
    given = parts(a=Outcome(1, "calls"), b=Outcome(1, "calls"), c=Outcome(1, "steps"))
    stress.main(["--minutes", "2"])
    assert given == {"a": 90, "b": 30, "c": 0}
    stress.main(["--minutes", "2", "--part", "b", "--part", "c"])
    assert given == {"a": 90, "b": 120, "c": 0}
    given.clear()
    stress.main(["--part", "c"])
    assert given == {"c": 0}


def test_the_parts_of_the_script_share_all_of_the_time():
    assert sum(share for share, _ in stress.PARTS.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome(5, "calls", ("one is wrong",)), "one is wrong"),
        (Outcome(0, "calls"), "nothing was done"),
        (MemoryError("no room"), "MemoryError: no room"),
    ],
)
def test_anything_wrong_is_told_and_is_the_exit_status(parts, capsys, outcome, said):
    given = parts(a=outcome, b=Outcome(1, "calls"))
    assert stress.main([]) == 1
    out = capsys.readouterr().out
    assert "FAIL: " in out
    assert said in out
    assert out.splitlines()[-1] == "FAIL"
    assert "b" in given, "the next part runs all the same"


def test_many_wrong_things_are_counted_and_not_all_shown():
    verdict = judged("a", Outcome(3, "calls", tuple(f"wrong {i}" for i in range(20))), 1.0)
    assert "wrong 7" in verdict.said
    assert "wrong 8" not in verdict.said
    assert verdict.said.endswith("and 12 more")


def test_the_file_says_the_same(parts, tmp_path):
    parts(a=Outcome(7, "calls", said="8 threads"), b=Outcome(5, "calls", ("one is wrong",)))
    path = tmp_path / "stress.json"
    stress.main(["--minutes", "1", "--json", str(path)])
    found = json.loads(path.read_text())
    seconds = [part.pop("seconds") for part in found["parts"]]
    assert all(0 <= one < 1 for one in seconds)
    assert found == {
        "minutes": 1.0,
        "good": False,
        "asked": ["a", "b"],
        "parts": [
            {"part": "a", "good": True, "count": 7, "unit": "calls", "said": "8 threads"},
            {"part": "b", "good": False, "count": 5, "unit": "calls", "said": "one is wrong"},
        ],
    }


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "1441", "soon"])
def test_other_than_some_minutes_is_refused(capsys, minutes):
    with pytest.raises(SystemExit) as caught:
        stress.main([f"--minutes={minutes}"])
    assert caught.value.code == 2
    assert "--minutes" in capsys.readouterr().err


def test_a_part_that_hangs_ends_the_run_with_its_stack_and_the_file_is_not_good(tmp_path):
    path = tmp_path / "stress.json"
    code = f"""
import sys, time
from tests.gpu import stress
from tests.gpu.verdicts import Outcome

def asleep_for_ever(seconds):
    time.sleep(60)

stress.PARTS = {{"a": (1, lambda _: Outcome(1, "calls")), "b": (0, asleep_for_ever)}}
stress.MARGIN_S = 0.5
stress.main(["--minutes", "0.001", "--json", {str(path)!r}])
"""
    begun = time.monotonic()
    ran = stress_processes.run_command("hanging", [sys.executable, "-c", code], 50)
    assert time.monotonic() - begun < 40
    assert ran.status == 1
    assert "asleep_for_ever" in ran.err
    found = json.loads(path.read_text())
    assert (found["good"], [part["part"] for part in found["parts"]]) == (False, ["a"])


# Leaks


def test_growth_is_from_the_first_samples_to_the_last():
    assert leaks.growth([10, 10, 10, 12, 14, 14, 14]) == 4
    assert leaks.growth([10, 10, 10, 8, 7, 7]) == -3


def test_a_moment_of_more_memory_is_no_growth():
    assert leaks.growth([10, 90, 10, 10, 95, 10]) == 0


def test_growth_needs_samples_at_both_ends():
    with pytest.raises(ValueError, match="needs 6 samples, got 5"):
        leaks.growth([1] * 5)


def test_a_steady_leak_is_told_with_its_samples():
    steady = [100 * leaks.MIB + turn * leaks.MIB // 2 for turn in range(8)]
    (said,) = leaks.leaks("host memory", steady)
    assert said.startswith("host memory grew by 2.00 MiB: 100.00, 100.50,")
    assert leaks.leaks("host memory", [100 * leaks.MIB] * 8) == []


def test_a_mebibyte_is_allowed_and_a_byte_more_is_not():
    start = [0] * 3
    assert leaks.leaks("host memory", start + [leaks.MIB] * 3) == []
    assert leaks.leaks("host memory", start + [leaks.MIB + 1] * 3) != []


def test_resident_memory_is_the_second_number_in_pages(tmp_path):
    statm = tmp_path / "statm"
    statm.write_text("1000 25 3 4 0 6 0\n")
    assert leaks.resident_bytes(str(statm)) == 25 * 4096


def test_resident_memory_sees_what_is_held():
    before = leaks.resident_bytes()
    with mmap.mmap(-1, 64 << 20) as fresh:
        np.frombuffer(fresh, np.uint8)[:] = 1
        assert leaks.resident_bytes() - before >= 48 << 20


# The pool of calls, on the CPU


def test_every_kind_and_layout_is_verified_against_fp64():
    cases = stress_pool.verified(np, (1, 3, 17, 65, 100))
    kinds = {tuple(case.name.split()[:3]) for case in cases}
    assert {(kind, "auto", layout) for kind in stress_pool.KINDS for layout in ("k", "n")} <= kinds
    assert {layout for _, _, layout in kinds} == set(stress_pool.VARIANTS)
    for case in cases:
        assert case.bits.shape == case.shape
        assert bool((case.call().view(np.uint16) == case.bits).all())


def test_a_pool_is_the_same_each_time():
    first, again = (stress_pool.verified(np, (5, 9)) for _ in range(2))
    assert [case.name for case in first] == [case.name for case in again]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.bits, other.bits)


def case_that_gives(found, expected, **options):
    return stress_pool.Case("a case", lambda **_: found, expected, 1e-4, **options)


@pytest.mark.parametrize("value", [np.nan, 1.02, 0.0])
def test_one_wrong_element_is_told_with_the_name_of_its_case(value):
    expected = np.ones((4, 8))
    found = expected.astype(ml_dtypes.bfloat16)
    case_that_gives(found, expected).verify(np)
    found[3, 7] = value
    with pytest.raises(AssertionError, match="a case: "):
        case_that_gives(found, expected).verify(np)


def test_a_token_that_has_other_bits_among_more_is_told():
    expected = np.ones((4, 8))
    whole = case_that_gives(expected.astype(ml_dtypes.bfloat16), expected)
    few = expected[:2].astype(ml_dtypes.bfloat16)
    whole.verify(np)
    case_that_gives(few, expected[:2], prefix_of=whole).verify(np)
    few.view(np.uint16)[1, 1] -= 1  # a neighbour, close enough for FP64
    with pytest.raises(AssertionError, match="a case: other bits than among more"):
        case_that_gives(few, expected[:2], prefix_of=whole).verify(np)


def test_calls_take_an_output():
    for case in stress_pool.verified(np, (3,)):
        out = np.full(case.shape, np.nan, ml_dtypes.bfloat16)
        assert case.call(out=out) is out
        np.testing.assert_array_equal(out.view(np.uint16), case.bits)


# Processes


def test_every_script_that_a_part_names_is_there_and_runs_once():
    named = [name for names in stress_processes.SCRIPTS.values() for name in names]
    assert sorted(named) == sorted(stressed.SCRIPTS)


def test_processes_that_do_their_steps_and_say_no_more_are_right():
    found = stress_processes.outcome(
        [Ran("one", 0, "first\nsecond\n", ""), Ran("other", 0, "NOTE it runs\nfirst\n", "")]
    )
    assert found == Outcome(3, "steps", (), "other: it runs")


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (Ran("one", 0, "first\nWRONG a number\n", ""), "one: a number"),
        (Ran("one", 0, "first\n", "Exception ignored in ..."), "one: said on stderr: Exception ig"),
        (Ran("one", 0, "", ""), "one: did nothing"),
        (Ran("one", -11, "first\n", "Segmentation fault"), "one: ended with -11: Segmentation"),
        (Ran("one", None, "first\n", "in a call"), "one: did not end: in a call"),
    ],
)
def test_any_other_end_of_a_process_is_told(ran, said):
    (found,) = stress_processes.outcome([ran]).wrong
    assert found.startswith(said)


def test_a_process_says_how_it_ended_and_what_it_said():
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    ran = stress_processes.run_command("one", [sys.executable, "-c", code], 30)
    assert ran == Ran("one", 3, "out\n", "err\n")


def test_a_process_that_does_not_end_is_killed_and_what_it_said_is_kept():
    code = "import time; print('first', flush=True); time.sleep(60)"
    ran = stress_processes.run_command("one", [sys.executable, "-c", code], 2)
    assert (ran.status, ran.out) == (None, "first\n")


def test_a_script_that_has_no_gpu_is_not_right(monkeypatch):
    """As here: it ends with an error, which is told."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = stress_processes.run_all("fork")
    (said,) = found.wrong
    assert said.startswith("fork: ended with 1: ")


def test_the_calls_of_the_scripts_have_the_result_of_fp64(monkeypatch):
    """On the CPU, where NumPy is all that is needed of CuPy."""
    monkeypatch.setattr(stressed, "_on_gpu", lambda _, host: host)
    made = stressed.Calls(np)

    class Found:
        def __init__(self, array):
            self._array = array

        def get(self):
            return self._array

        def __len__(self):
            return len(self._array)

    found = cuswiglu.mlp(made.x, *made.weights)
    assert made.is_right(Found(found))
    found[0] = np.nan
    assert not made.is_right(Found(found))
