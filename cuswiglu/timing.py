"""Timing on the GPU: contenders in CUDA graphs, taking turns, over buffers that outrun the L2."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from .arrays import cupy_module

Contender = Callable[[int], Any]


def buffer_sets(set_bytes: int) -> int:
    """How many sets of weights together exceed twice the L2 of the current device."""
    cupy = cupy_module()
    l2 = int(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["l2CacheSize"])
    return max(2, -(-2 * l2 // set_bytes) + 1)


def microseconds(
    contenders: Mapping[str, Contender],
    sets: int,
    *,
    rounds: int = 9,
    target_us: float = 10_000.0,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Median time of one call of each contender, on the current device.

    Parameters
    ----------
    contenders : mapping of name to function
        Each is called with a set's number, 0 <= number < `sets`, and launches on CuPy's current
        stream. It must be capturable: no host synchronisation.
    sets : int
        Sets of buffers that calls rotate through, so that none finds its weights in the L2.
    rounds : int
        Turns: in each, every contender runs once for about `target_us`, so that all see the same
        clocks and heat.
    tick : function
        Called after each measurement, for a progress bar.

    Returns
    -------
    dict of str to float
        Microseconds a call, without the host's launch time: calls are replayed from a graph.
    """
    cupy = cupy_module()
    stream = cupy.cuda.Stream(non_blocking=True)
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()

    def elapsed(graph: Any, replays: int) -> float:
        start.record(stream)
        for _ in range(replays):
            graph.launch(stream)
        stop.record(stream)
        stop.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, stop)) * 1e3 / (replays * sets)

    graphs, replays = {}, {}
    with stream:
        for name, contender in contenders.items():
            for number in range(sets):  # compiles, loads and allocates whatever it needs
                contender(number)
            stream.synchronize()
            stream.begin_capture()
            for number in range(sets):
                contender(number)
            graphs[name] = stream.end_capture()
            elapsed(graphs[name], 1)
            replays[name] = max(1, round(target_us / (sets * elapsed(graphs[name], 1))))
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, graph in graphs.items():
                times[name].append(elapsed(graph, replays[name]))
                tick()
    return {name: statistics.median(values) for name, values in times.items()}
