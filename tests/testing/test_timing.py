"""Turns, medians and contenders that cannot be prepared, with a GPU that only counts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cuswiglu.testing import timing

SETS = 4


class Gpu:
    """A stream whose launches take microseconds of a clock that nothing else moves."""

    def __init__(self):
        self.now, self.capturing, self.log, self.broken = 0.0, None, [], False
        gpu = self

        class Stream:
            def __init__(self, non_blocking):
                pass

            def __enter__(self):
                return self

            def __exit__(self, *exception):
                pass

            def synchronize(self):
                pass

            def begin_capture(self):
                gpu.capturing = []

            def end_capture(self):
                captured, gpu.capturing = gpu.capturing, None
                if gpu.broken:
                    raise RuntimeError("the capture was invalidated")
                return SimpleNamespace(launch=lambda stream: [gpu.work(*one) for one in captured])

        class Event:
            def record(self, stream):
                self.when = gpu.now

            def synchronize(self):
                pass

        cuda = SimpleNamespace(
            Stream=Stream,
            Event=Event,
            get_elapsed_time=lambda start, stop: (stop.when - start.when) / 1e3,
        )
        self.cupy = SimpleNamespace(cuda=cuda)

    def work(self, name, number, microseconds):
        if self.capturing is not None:
            self.capturing.append((name, number, microseconds))
            return
        self.log.append((name, number))
        self.now += microseconds

    def contender(self, name, microseconds):
        return lambda number: self.work(name, number, microseconds)


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(timing, "cupy_module", lambda: gpu.cupy)
    return gpu


def test_times_are_of_one_call(gpu):
    contenders = {"a": gpu.contender("a", 5.0), "b": gpu.contender("b", 20.0)}
    times = timing.microseconds(contenders, SETS, rounds=3, target_us=200)
    assert times == {"a": pytest.approx(5), "b": pytest.approx(20)}


def test_contenders_take_turns_over_all_sets(gpu):
    contenders = {"a": gpu.contender("a", 5.0), "b": gpu.contender("b", 5.0)}
    ticks = []
    timing.microseconds(
        contenders, SETS, rounds=2, target_us=20, tick=lambda: ticks.append(len(gpu.log))
    )
    turns = gpu.log[ticks[0] - SETS :]
    assert turns == [(name, number) for name in "abab" for number in range(SETS)]
    assert len(ticks) == 4


def test_a_contender_may_prepare_and_time_itself(gpu):
    class Mine:
        def prepare(self, stream, sets):
            assert sets == SETS
            return lambda replays: 9.0 * sets * replays

    times = timing.microseconds({"mine": Mine(), "a": gpu.contender("a", 5.0)}, SETS, rounds=1)
    assert times == {"mine": pytest.approx(9), "a": pytest.approx(5)}


def fails_in_capture(gpu):
    def call(number):
        if gpu.capturing is not None:
            gpu.broken = True
            raise ValueError("not while capturing")

    return call


def test_a_contender_that_cannot_be_captured_is_left_out_and_told(gpu):
    told = []

    def failed(name, error):
        gpu.broken = False
        told.append((name, str(error)))

    contenders = {"bad": fails_in_capture(gpu), "a": gpu.contender("a", 5.0)}
    times = timing.microseconds(contenders, SETS, rounds=1, failed=failed)
    assert told == [("bad", "not while capturing")]
    assert list(times) == ["a"]
    assert gpu.capturing is None


def test_without_anyone_to_tell_the_error_is_raised(gpu):
    with pytest.raises(ValueError, match="not while capturing"):
        timing.microseconds({"bad": fails_in_capture(gpu)}, SETS)
