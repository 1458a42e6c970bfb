"""What needs a process of its own: `python stressed.py fork`, or another name of SCRIPTS.

Prints what it did, a line each; a line that begins with WRONG says what was wrong, one with NOTE
what is worth knowing.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import sys
import threading
import warnings
from typing import Any

import ml_dtypes
import numpy as np

import cuswiglu
from cuswiglu.runtime.driver import DriverError
from cuswiglu.testing import numerics

LIMIT_S = 50  # then the stacks of all threads are told
CALLS = 100  # left in flight, of a millisecond each


def wrong(text: str) -> None:
    print(f"WRONG {text}", flush=True)


def done(text: str) -> None:
    print(text, flush=True)


def drawn(*shape: int) -> Any:
    """N(0, 1) in BF16, on the host: nothing here needs a kernel of CuPy's."""
    return np.random.default_rng(0).standard_normal(shape).astype(ml_dtypes.bfloat16)


def _on_gpu(cupy: Any, host: Any) -> Any:
    array = cupy.empty(host.shape, host.dtype)
    array.set(host)
    return array


class Calls:
    """x and weights on the GPU, calls with them, and their results in FP64."""

    def __init__(self, cupy: Any, m: int = 16, k: int = 256, n: int = 512) -> None:
        scaled = [drawn(k, n), drawn(k, n)[::-1].copy(), drawn(n, k)]
        host = [drawn(m, k), *((w / len(w) ** 0.5).astype(w.dtype) for w in scaled)]
        self._expected = numerics.mlp_reference(np, *host)
        self.x, *self.weights = (_on_gpu(cupy, array) for array in host)
        self._cupy = cupy
        self.layer = cuswiglu.GatedMLP(*self.weights)
        self.mlp = functools.partial(cuswiglu.mlp, self.x, *self.weights)

    def is_right(self, found: Any) -> bool:
        result = numerics.compare(np, found.get(), self._expected[: len(found)])
        return result.relative_error < 2**-8

    def check(self, name: str, call: Any) -> None:
        """The call is right."""
        try:
            found = call()
            self._cupy.cuda.runtime.deviceSynchronize()
            if not self.is_right(found):
                wrong(f"{name}: a wrong result")
        except Exception as error:
            wrong(f"{name}: {type(error).__name__}: {error}")
        done(f"{name} was called")


# A forked child


def fork() -> None:
    """Nothing of ours can be used in the child; the parent goes on."""
    import cupy

    made = Calls(cupy)
    step = made.layer.capture(made.x)
    out = cupy.empty_like(made.x)
    calls = {
        "mlp": made.mlp,
        "mlp with out": lambda: made.mlp(out=out),
        "GatedMLP": lambda: made.layer(made.x),
        "GatedMLP of another shape": lambda: made.layer(made.x[:3]),
        "a replay": step,
    }
    for name in ("mlp", "mlp with out", "GatedMLP", "a replay"):
        made.check(name, calls[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # CUDA has threads of its own
        child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S // 2)
        for name, call in calls.items():
            _refused_in_child(name, call)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        wrong(f"the child ended with {status}")
    for name in ("mlp", "mlp with out", "GatedMLP", "a replay"):
        made.check(f"{name} in the parent", calls[name])


def _refused_in_child(name: str, call: Any) -> None:
    try:
        call()
    except DriverError as error:
        if "forked" not in str(error):
            wrong(f"{name} in a forked child: {error}")
    except Exception as error:
        wrong(f"{name} in a forked child: no DriverError, but {type(error).__name__}: {error}")
    else:
        wrong(f"{name} in a forked child was not refused")
    done(f"{name} was refused in the child")


# The end of the interpreter


def busy_layer(cupy: Any) -> tuple[Any, Any]:
    """A GatedMLP that takes a millisecond, and its input."""
    m, k, n = 4096, 4096, 8192
    weights = [cupy.zeros(shape, ml_dtypes.bfloat16) for shape in ((k, n), (k, n), (n, k))]
    return cuswiglu.GatedMLP(*weights), cupy.zeros((m, k), ml_dtypes.bfloat16)


def _leave(*streams: Any) -> None:
    """Say that work is in flight, if it is; then the interpreter ends."""
    if all(stream.done for stream in streams):
        wrong("nothing was in flight at the end")
    done("left with work in flight")


kept: list[Any] = []


def exit_calls() -> None:
    """Calls with new results, which nobody waits for; all they use lives as long as the process."""
    import cupy

    layer, x = busy_layer(cupy)
    stream = cupy.cuda.Stream(non_blocking=True)
    layer(x)
    cupy.cuda.runtime.deviceSynchronize()
    for _ in range(CALLS):
        layer(x, stream=stream)
    _leave(stream)
    kept.extend((layer, x, stream))


def exit_graph() -> None:
    """Replays of a graph that is dropped while they run."""
    import cupy

    layer, x = busy_layer(cupy)
    stream = cupy.cuda.Stream(non_blocking=True)
    step = layer.capture(x)
    for _ in range(CALLS):
        step(stream=stream)
    _leave(stream)


def exit_threads() -> None:
    """Threads that have ended, whose streams are busy."""
    import cupy

    layer, x = busy_layer(cupy)
    layer(x)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    cupy.cuda.runtime.deviceSynchronize()

    def work(stream: Any) -> None:
        for _ in range(CALLS // 4):
            layer(x, stream=stream)

    threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _leave(*streams)


class Exporter:
    """Another library's array: nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)


def exit_loans() -> None:
    """Arrays lent by another library, which are still read."""
    import cupy

    layer, x = busy_layer(cupy)
    layer(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    for _ in range(CALLS):
        layer(Exporter(x), stream=stream)
    _leave(stream)


# A second context


def _second(cuda: Any) -> Any:
    """A context beside the primary one, current from now on."""
    from cuda.bindings import __version__

    check(cuda.cuInit(0))
    device = check(cuda.cuDeviceGet(0))
    parameters = [None] if int(__version__.partition(".")[0]) >= 13 else []
    return check(cuda.cuCtxCreate(*parameters, 0, device))


def check(result: Any) -> Any:
    status, *values = result
    assert int(status) == 0, status
    return values[0] if values else None


def context_after() -> None:
    """The primary context is used, then another is current for a while."""
    import cupy
    from cuda.bindings import driver as cuda

    made = Calls(cupy)
    stream, few = cupy.cuda.Stream(non_blocking=True), made.x[:3]
    outs = [cupy.empty_like(x) for x in (made.x, made.x, made.x, few)]  # memory of the primary's
    calls = {
        "mlp": lambda: made.mlp(out=outs[0]),
        "mlp on a stream": lambda: made.mlp(out=outs[1], stream=stream),
        "GatedMLP": lambda: made.layer(made.x, out=outs[2]),
        "GatedMLP of another shape": lambda: made.layer(few, out=outs[3]),
    }
    for name in ("mlp", "mlp on a stream", "GatedMLP"):
        made.check(name, calls[name])
    second = _second(cuda)
    found = {name: _in_second(cupy, name, call, stream) for name, call in calls.items()}
    check(cuda.cuCtxPopCurrent())
    cupy.cuda.runtime.deviceSynchronize()
    for name, result in found.items():
        if result is not None and not made.is_right(result):
            wrong(f"{name} in a second context: a wrong result")
    for name, call in calls.items():
        made.check(f"{name} afterwards", call)
    check(cuda.cuCtxDestroy(second))
    for name, call in calls.items():
        made.check(f"{name} once the second context is gone", call)


def _in_second(cupy: Any, name: str, call: Any, stream: Any) -> Any:
    """A result, or None where one clear error was raised."""
    try:
        found = call()
        stream.synchronize()
        cupy.cuda.runtime.deviceSynchronize()
    except DriverError as error:
        done(f"NOTE {name} in a second context: {error}")
        return None
    except Exception as error:
        wrong(f"{name} in a second context: no DriverError, but {type(error).__name__}: {error}")
        return None
    done(f"NOTE {name} in a second context runs")
    return found


def context_first() -> None:
    """The first call of the process is made while another context is current."""
    import cupy
    from cuda.bindings import driver as cuda

    second = _second(cuda)
    made = Calls(cupy)
    found = _in_second(cupy, "mlp, the first of all,", made.mlp, cupy.cuda.Stream.null)
    if found is not None and not made.is_right(found):
        wrong("mlp, the first of all, in a second context: a wrong result")
    del made, found
    cupy.get_default_memory_pool().free_all_blocks()
    check(cuda.cuCtxPopCurrent())
    check(cuda.cuCtxDestroy(second))
    made = Calls(cupy)
    made.check("mlp once the second context is gone", made.mlp)
    made.check("GatedMLP once the second context is gone", lambda: made.layer(made.x))


def context_beside() -> None:
    """Another thread has a context of its own, and works in it."""
    import cupy
    from cuda.bindings import driver as cuda

    made = Calls(cupy)
    stop, turns = threading.Event(), []

    def work() -> None:
        second = _second(cuda)
        memory = check(cuda.cuMemAlloc(1 << 20))
        while not stop.is_set():
            check(cuda.cuMemsetD8(memory, 0xFF, 1 << 20))
            check(cuda.cuCtxSynchronize())
            turns.append(1)
        check(cuda.cuMemFree(memory))
        check(cuda.cuCtxDestroy(second))

    thread = threading.Thread(target=work)
    thread.start()
    while not turns and thread.is_alive():
        stop.wait(0.01)
    for _ in range(200):
        made.check("mlp beside a second context", made.mlp)
    stop.set()
    thread.join()
    if not turns:
        wrong("the other thread did nothing")


SCRIPTS = {
    "fork": fork,
    "exit-calls": exit_calls,
    "exit-graph": exit_graph,
    "exit-threads": exit_threads,
    "exit-loans": exit_loans,
    "context-after": context_after,
    "context-first": context_first,
    "context-beside": context_beside,
}

if __name__ == "__main__":
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    SCRIPTS[sys.argv[1]]()
