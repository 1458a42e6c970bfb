"""Threads on streams of their own, calls of every kind; fresh threads; graphs among them."""

from __future__ import annotations

import functools
import random
import threading
import time
import traceback
from typing import Any

import cuswiglu
from cuswiglu.testing import numerics
from tests.gpu import drawing, stress_kernels, stress_pool
from tests.gpu.compare import of_flips
from tests.gpu.stress_kernels import NAN
from tests.gpu.stress_pool import Case
from tests.gpu.verdicts import Outcome

THREADS, STREAMS = 8, 2
TURNS = 200  # of a thread, until it waits for its streams
REPLAYED = (1, 16, 64, 300)  # M of captured calls
FRESH = 8  # threads at a time


@functools.cache
def _cases() -> list[Case]:
    import cupy

    cases = stress_pool.verified(cupy)
    cupy.cuda.runtime.deviceSynchronize()
    return cases


class _Worker:
    """One thread: calls in any order, on its streams, compared on the GPU.

    Its failures are told when it is done.
    """

    def __init__(self, number: int, cases: list[Case], stop: threading.Event, end: float) -> None:
        self._cases, self._stop, self._end = cases, stop, end
        self._choose = random.Random(number)
        self.turns = 0
        self.wrong: list[str] = []
        self.doing = "getting ready"
        self.thread = threading.Thread(target=self._run, name=f"thread {number}", daemon=True)

    def _run(self) -> None:
        try:
            self._work()
        except Exception:
            self._stop.set()
            self.wrong.append(f"{self.thread.name}, {self.doing}: {traceback.format_exc().strip()}")

    def _work(self) -> None:
        import cupy

        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS)]
        counts = cupy.zeros(len(self._cases), cupy.uint64)
        cupy.cuda.get_current_stream().synchronize()
        while time.monotonic() < self._end and not self._stop.is_set():
            for _ in range(TURNS):
                index = self._choose.randrange(len(self._cases))
                self._turn(cupy, self._cases[index], counts[index:], self._choose.choice(streams))
            for stream in streams:
                stream.synchronize()
            if int(counts.sum()):
                self._stop.set()
        names = [f"{self.thread.name}, {case.name}" for case in self._cases]
        self.wrong += stress_kernels.told(names, counts)

    def _turn(self, cupy: Any, case: Case, count: Any, stream: Any) -> None:
        self.doing = case.name
        given, current = self._choose.random() < 0.5, self._choose.random() < 0.5
        options = {}
        with stream:
            if given:
                options["out"] = stress_kernels.poisoned(case.shape)
            if current:
                found = case.call(**options)
        if not current:  # from outside, by object or by handle
            found = case.call(stream=self._choose.choice((stream, stream.ptr)), **options)
        assert not given or found is options["out"], "out is what comes back"
        with stream:
            stress_kernels.differ(found, case.bits, count)
        self.turns += 1


def _workers(cases: list[Case], seconds: float, count: int) -> list[_Worker]:
    """So many at work."""
    stop, end = threading.Event(), time.monotonic() + seconds
    workers = [_Worker(number, cases, stop, end) for number in range(count)]
    for worker in workers:
        worker.thread.start()
    return workers


def _joined(workers: list[_Worker]) -> tuple[int, list[str]]:
    for worker in workers:
        worker.thread.join()
    wrong = [text for worker in workers for text in worker.wrong]
    return sum(worker.turns for worker in workers), wrong


def threads(seconds: float) -> Outcome:
    """Threads times streams times cases."""
    cases = _cases()
    turns, wrong = _joined(_workers(cases, seconds, THREADS))
    said = f"{THREADS} threads, {THREADS * STREAMS} streams, {len(cases)} cases"
    return Outcome(turns, "calls", tuple(wrong), said)


def fresh_threads(seconds: float) -> Outcome:
    """The first use of CUDA in a thread is one call of ours, on memory that is there already."""
    import cupy

    cases, choose = _cases(), random.Random(0)
    streams = [None, *(cupy.cuda.Stream(non_blocking=True) for _ in range(2))]
    wrong: list[str] = []
    done, end = 0, time.monotonic() + seconds
    while (time.monotonic() < end or not done) and not wrong:
        calls = [_FreshCall(case, choose.random() < 0.5) for case in choose.sample(cases, FRESH)]
        cupy.cuda.runtime.deviceSynchronize()
        started = [
            threading.Thread(target=call, args=(choose.choice(streams),), daemon=True)
            for call in calls
        ]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        cupy.cuda.runtime.deviceSynchronize()
        wrong += filter(None, [call.wrong() for call in calls])
        done += len(calls)
    return Outcome(done, "threads", tuple(wrong))


class _FreshCall:
    """One call, with an output full of NaN or without."""

    def __init__(self, case: Case, given: bool) -> None:
        self._case, self._found, self._options = case, None, {}
        self._error = ""
        if given:
            self._options["out"] = stress_kernels.poisoned(case.shape)

    def __call__(self, stream: Any) -> None:
        try:
            self._found = self._case.call(stream=stream, **self._options)
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"

    def wrong(self) -> str:
        """In words, or ""."""
        if self._found is None:
            return f"{self._case.name}: {self._error}"
        same = bool((self._found.view("uint16") == self._case.bits).all())
        return "" if same else f"{self._case.name}: other bits in a fresh thread"


class _Step:
    """A captured call, and inputs with the bits that the call itself gives, which FP64 verifies."""

    def __init__(self, cupy: Any, draw: Any, m: int) -> None:
        k, n = 512, 1216
        parts = [drawing.weight(draw, k, n, "k") for _ in range(2)]
        parts.append(drawing.weight(draw, n, k, "k"))
        layer = cuswiglu.GatedMLP(*parts)
        self.inputs = []
        for number in range(4):
            x = draw(m, k)
            expected = numerics.mlp_reference(cupy, x, *parts)
            case = Case(f"M={m}", functools.partial(layer, x), expected, of_flips(n))
            case.verify(cupy)
            self.inputs.append((x, case.bits, f"M={m}, input {number}"))
        self.step = layer.capture(self.inputs[0][0])
        self.stream = cupy.cuda.Stream(non_blocking=True)


def replay(seconds: float) -> Outcome:
    """Graphs on streams of their own, again and again, while threads call what they like."""
    import cupy

    choose, draw = random.Random(1), drawing.drawer(cupy, 1)
    steps = [_Step(cupy, draw, m) for m in REPLAYED]
    inputs = [each for step in steps for each in step.inputs]
    counts = cupy.zeros(len(inputs), cupy.uint64)
    cases = _cases()
    cupy.cuda.runtime.deviceSynchronize()
    workers = _workers(cases, seconds, 2)
    done, end = 0, time.monotonic() + seconds
    while (time.monotonic() < end or not done) and not int(counts.sum()):
        for _ in range(TURNS):
            number = choose.randrange(len(inputs))
            step = steps[number // 4]
            x, bits, _ = inputs[number]
            with step.stream:
                stress_kernels.fill(step.step.y, NAN)
                if choose.random() < 0.5:
                    step.step(x)
                else:
                    step.step.x[...] = x
                    step.step()
                stress_kernels.differ(step.step.y, bits, counts[number:])
            done += 1
        for step in steps:
            step.stream.synchronize()
    beside, wrong = _joined(workers)
    wrong += stress_kernels.told([f"replay of {name}" for *_, name in inputs], counts)
    return Outcome(done, "replays", tuple(wrong), f"beside {beside} calls of 2 threads")
