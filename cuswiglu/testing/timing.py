"""Timing on the GPU: contenders in CUDA graphs, taking turns, over buffers that outrun the L2."""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..arrays import cupy_module

#: Call on a set of buffers, by its number.
Call = Callable[[int], Any]
#: Runs all sets so many times, and gives the microseconds that took.
Stopwatch = Callable[[int], float]


class Timed(Protocol):
    """A contender that CuPy cannot capture, and that prepares itself."""

    def prepare(self, stream: Any, sets: int) -> Stopwatch:
        """Compile, warm up and capture; the stopwatch times work on CuPy's `stream`."""
        ...


def buffer_sets(set_bytes: int) -> int:
    """Count the sets of weights that together exceed twice the L2 of the current device."""
    cupy = cupy_module()
    l2 = int(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["l2CacheSize"])
    return max(2, -(-2 * l2 // set_bytes) + 1)


def events_around(stream: Any, launch: Callable[[int], Any]) -> Stopwatch:
    """Make a stopwatch of CUDA events around `launch(replays)`, which puts work on `stream`."""
    cupy = cupy_module()
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()

    def elapsed(replays: int) -> float:
        start.record(stream)
        launch(replays)
        stop.record(stream)
        stop.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, stop)) * 1e3

    return elapsed


def captured(contender: Call, stream: Any, sets: int) -> Stopwatch:
    """Capture a contender that launches on CuPy's current stream, which `stream` is."""
    for number in range(sets):  # compiles, loads and allocates whatever it needs
        contender(number)
    stream.synchronize()
    stream.begin_capture()
    try:
        for number in range(sets):
            contender(number)
    except BaseException:
        with contextlib.suppress(Exception):  # what broke the capture is the error to report
            stream.end_capture()
        raise
    graph = stream.end_capture()

    def launch(replays: int) -> None:
        for _ in range(replays):
            graph.launch(stream)

    return events_around(stream, launch)


def microseconds(
    contenders: Mapping[str, Call | Timed],
    sets: int,
    *,
    rounds: int = 9,
    target_us: float = 10_000.0,
    tick: Callable[[], None] = lambda: None,
    failed: Callable[[str, Exception], None] | None = None,
) -> dict[str, float]:
    """Take the median time of one call of each contender, on the current device.

    Parameters
    ----------
    contenders : mapping of name to function or Timed
        A function is called with a set's number, 0 <= number < `sets`, and launches on CuPy's
        current stream. It must be capturable: no host synchronisation.
    sets : int
        Sets of buffers that calls rotate through, so that none finds its weights in the L2.
    rounds : int
        Turns: in each, every contender runs once for about `target_us`, in an order drawn anew, so
        that all see the same clocks and heat.
    tick : function
        Called after each measurement, for a progress bar.
    failed : function, optional
        Told of a contender that cannot be prepared, which is then left out; without it, the error
        is raised.

    Returns
    -------
    dict of str to float
        Microseconds a call, without the host's launch time: calls are replayed from a graph.
    """
    cupy = cupy_module()
    stream = cupy.cuda.Stream(non_blocking=True)
    ready: dict[str, tuple[Stopwatch, int]] = {}

    def prepare(name: str, contender: Call | Timed) -> None:
        try:
            stopwatch = (
                captured(contender, stream, sets)
                if callable(contender)
                else contender.prepare(stream, sets)
            )
            stopwatch(1)
            ready[name] = stopwatch, max(1, round(target_us / stopwatch(1)))
        except Exception as error:
            if failed is None:
                raise
            failed(name, error)

    with stream:
        for name, contender in contenders.items():
            prepare(name, contender)
        return in_turns(ready, sets, rounds, tick)


def in_turns(
    ready: Mapping[str, tuple[Stopwatch, int]],
    sets: int,
    rounds: int,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Take the median time of a call, in microseconds, of stopwatches with their replays."""
    times: dict[str, list[float]] = {name: [] for name in ready}
    order = list(ready)
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)  # whoever follows an idle or a slow contender finds a cooler chip
        for name in order:
            stopwatch, replays = ready[name]
            times[name].append(stopwatch(replays) / (replays * sets))
            tick()
    return {name: statistics.median(values) for name, values in times.items()}
