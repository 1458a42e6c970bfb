"""Plans, layers and graphs, made and dropped by the thousand: nothing is left of them."""

from __future__ import annotations

import time
from typing import Any

import cuswiglu
from cuswiglu.api import dispatch
from cuswiglu.runtime import plan
from tests.gpu import drawing, leaks, stress_kernels
from tests.gpu.compare import assert_close, reference
from tests.gpu.verdicts import Outcome

#: More shapes than the caches keep, so that every call of a round is planned anew.
SHAPES = max(plan.CACHED_CHOICES, dispatch.CACHED_CALLS) + 44
LAYERS = 16  # of a round
K, N = 64, 96
WARM_UP = 3  # rounds


class _Round:
    """The same calls each time, with the same bits."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        draw = drawing.drawer(cupy)
        self._x = draw(SHAPES, K)
        self._weights = [drawing.weight(draw, K, N, "k") for _ in range(2)]
        self._down = drawing.weight(draw, N, K, "n")
        expected = reference(cupy, self._x, *self._weights)
        assert_close(cupy, cuswiglu.swiglu(self._x, *self._weights), expected)
        self._expected: list[Any] = []
        self.count = cupy.zeros(1, cupy.uint64)
        self.plans = 0

    def run(self) -> None:
        results = [*self._calls(), *self._layers()]
        if not self._expected:
            self._expected = [result.copy() for result in results]
        for found, expected in zip(results, self._expected, strict=True):
            stress_kernels.differ(found, expected, self.count)

    def _calls(self) -> Any:
        for m in range(1, SHAPES + 1):
            yield cuswiglu.swiglu(self._x[:m], *self._weights)
            self.plans += 1

    def _layers(self) -> Any:
        packed = cuswiglu.pack(*self._weights)
        for number in range(LAYERS):
            x = self._x[: 1 + 20 * number]
            given = (packed, None) if number % 4 == 3 else self._weights
            layer = cuswiglu.GatedMLP(*given, self._down)
            yield layer(x)
            yield layer(x, out=self._cupy.empty_like(x))
            step = layer.capture(x)
            yield step(x).copy()
            self.plans += 6


def plans(seconds: float) -> Outcome:
    """Rounds for so many seconds, at least as many as tell a leak."""
    import cupy

    rounds = _Round(cupy)
    for _ in range(WARM_UP):
        rounds.run()
    samples = [leaks.held(cupy)]
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(samples) < 2 * leaks.ENDS + 2:
        rounds.run()
        samples.append(leaks.held(cupy))
    wrong = []
    differ = int(rounds.count[0])
    if differ:
        wrong.append(f"{differ} elements differ from the first round's")
    host, device = zip(*samples, strict=True)
    wrong += leaks.leaks("host memory", host) + leaks.leaks("device memory", device)
    said = (
        f"host {leaks.growth(host) / leaks.MIB:+.2f} MiB, "
        f"device {leaks.growth(device) / leaks.MIB:+.2f} MiB in {len(samples) - 1} rounds"
    )
    return Outcome(rounds.plans, "plans", tuple(wrong), said)
