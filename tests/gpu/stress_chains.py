"""Our kernels, which start early, between foreign ones on one stream, which do not.

A foreign kernel writes x late, just ahead of ours, and another reads y just behind. x and y are NaN
before each turn, so that what starts too early reads or leaves NaN.
"""

from __future__ import annotations

import random
import time
from typing import Any

import cuswiglu
from cuswiglu.common.dtypes import BFLOAT16
from cuswiglu.testing import numerics
from tests.gpu import drawing, stress_kernels
from tests.gpu.compare import NEAR_ZERO, assert_close, of_flips, reference
from tests.gpu.stress_kernels import NAN
from tests.gpu.verdicts import Outcome

MS = (1, 7, 16, 130, 300)
K, N = 512, 1216
CYCLES = (0, 0, 3_000, 30_000, 150_000)  # of a foreign kernel: up to a quarter of a millisecond
BLOCKS = (1, 3, 132, 1056)  # of it: room for ours beside it, or none
TURNS = 100  # until the streams are waited for
INPUTS = 3  # of each M


class _Chains:
    """Layers, inputs, and what comes out, verified while nothing else runs."""

    def __init__(self, cupy: Any, seed: int) -> None:
        self._cupy, self._choose = cupy, random.Random(seed)
        draw = drawing.drawer(cupy, seed)
        self._layers = []
        parts = []
        for layout in "kn":
            weights = [drawing.weight(draw, K, N, layout) for _ in range(2)]
            weights.append(drawing.weight(draw, N, K, layout))
            parts.append(weights)
            self._layers.append(cuswiglu.GatedMLP(*weights))
        self._gate_up = parts[0][:2]
        self._inputs = [draw(m, K) for m in MS for _ in range(INPUTS)]
        self.names: list[str] = []
        self._expected: list[Any] = []
        for x in self._inputs:
            gate_up = cuswiglu.swiglu(x, *self._gate_up)
            first = self._layers[0](x)
            second = self._layers[1](first)
            for name, found, expected in (
                ("swiglu", gate_up, reference(cupy, x, *self._gate_up)),
                ("mlp", first, numerics.mlp_reference(cupy, x, *parts[0])),
                ("two", second, numerics.mlp_reference(cupy, first, *parts[1])),
            ):
                near_zero = NEAR_ZERO if name == "swiglu" else of_flips(N)
                assert_close(cupy, found, expected, near_zero=near_zero)
                self._expected.append(found)
                self.names.append(f"{name} M={len(x)}")
        self.counts = cupy.zeros(len(self._expected), cupy.uint64)
        self._x = {m: cupy.empty((m, K), BFLOAT16) for m in MS}
        self._between = {m: cupy.empty((m, K), BFLOAT16) for m in MS}
        self._busy = cupy.ones(1 << 24, cupy.float32)
        self._scratch = cupy.empty_like(self._inputs[0])
        self.stream, self._beside = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        cupy.cuda.runtime.deviceSynchronize()

    def _late(self, source: Any, target: Any) -> None:
        """A foreign kernel, of any duration and size."""
        choose = self._choose.choice
        stress_kernels.write_late(source, target, choose(CYCLES), choose(BLOCKS))

    def turn(self) -> None:
        """x written, ours, y read: one of the chains, on the current stream."""
        number = self._choose.randrange(len(self._inputs))
        kind = self._choose.choice(("swiglu", "mlp", "two", "apart"))
        source = self._inputs[number]
        x, between = self._x[len(source)], self._between[len(source)]
        if self._choose.random() < 0.3:
            self._work_beside()
        stress_kernels.fill(x, NAN)
        stress_kernels.fill(between, NAN)
        self._late(source, x)
        if kind == "swiglu":
            y = self._called(lambda **out: cuswiglu.swiglu(x, *self._gate_up, **out), (len(x), N))
        elif kind == "mlp":
            y = self._called(lambda **out: self._layers[0](x, **out), (len(x), K))
        elif kind == "two":  # two of our chains, one behind the other
            y = self._called(lambda **out: self._layers[1](self._layers[0](x), **out), (len(x), K))
        else:  # the same with a foreign kernel between
            self._late(self._layers[0](x), between)
            y = self._called(lambda **out: self._layers[1](between, **out), (len(x), K))
        index = 3 * number + {"swiglu": 0, "mlp": 1}.get(kind, 2)
        blocks = self._choose.choice(BLOCKS)
        stress_kernels.differ(y, self._expected[index], self.counts[index:], blocks)

    def _called(self, call: Any, shape: tuple[int, int]) -> Any:
        """With an output full of NaN, or a new one."""
        if self._choose.random() < 0.5:
            return call()
        return call(out=stress_kernels.poisoned(shape))

    def _work_beside(self) -> None:
        """On another stream: all of memory's bandwidth, or a few SMs for long."""
        with self._beside:
            if self._choose.random() < 0.5:
                self._cupy.multiply(self._busy, 1.0, out=self._busy)
            else:
                stress_kernels.write_late(self._inputs[0], self._scratch, 200_000, 8)

    def wait(self) -> None:
        self.stream.synchronize()
        self._beside.synchronize()


def chains(seconds: float) -> Outcome:
    """Turns of all kinds, for so many seconds."""
    import cupy

    made = _Chains(cupy, 0)
    done, end = 0, time.monotonic() + seconds
    while (time.monotonic() < end or not done) and not int(made.counts.sum()):
        with made.stream:
            for _ in range(TURNS):
                made.turn()
        made.wait()
        done += TURNS
    return Outcome(done, "chains", tuple(stress_kernels.told(made.names, made.counts)))
