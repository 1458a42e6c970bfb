"""Capture a layer's call in a CUDA graph, and replay it.

Shows: GatedMLP.capture, its static input and result, and what a replay saves the host.
Needs: a CUDA GPU, and the extra cuda12 or cuda13.
Run:   python examples/06_cuda_graph.py
"""

import time

import cupy
import numpy as np
from ml_dtypes import bfloat16

import cuswiglu

TOKENS, HIDDEN, INTERMEDIATE = 4, 896, 4864  # M; K and N of Qwen-2.5 0.5B
CALLS = 200


def host_microseconds(call):
    """Time that the host takes for one of `CALLS` calls, without waiting for the GPU meanwhile."""
    cupy.cuda.runtime.deviceSynchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    taken = time.perf_counter() - start
    cupy.cuda.runtime.deviceSynchronize()
    return taken / CALLS * 1e6


def main():
    """Capture, replay, print, check."""
    rng = np.random.default_rng(0)

    def drawn(*shape):
        values = rng.standard_normal(shape, dtype=np.float32) * shape[-1] ** -0.5
        return cupy.asarray(values.astype(bfloat16))

    shapes = (INTERMEDIATE, HIDDEN), (INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE)
    layer = cuswiglu.GatedMLP(*(drawn(*shape).T for shape in shapes))
    x, other = drawn(TOKENS, HIDDEN), drawn(TOKENS, HIDDEN)

    step = layer.capture(x)  # runs once, then is captured
    expected = layer(other)
    y = step(other)  # copies `other` into step.x, replays, returns step.y
    same = bool((y.view("uint16") == expected.view("uint16")).all())
    print(f"{step}; the same bits as a call: {same}")
    print(f"host time: call {host_microseconds(lambda: layer(x)):.1f} us, ", end="")
    print(f"replay {host_microseconds(step):.1f} us")
    assert same


if __name__ == "__main__":
    main()
