"""Run under compute-sanitizer: small launches with tails, of the families that are named.

Of tiles every variant, layout and width; of kernels of exchanged operands every variant and layout,
and widths from the fewest tokens to the most; of resident ones every variant and layout; of decode
kernels every variant and layout, one CTA and as many as share K. Each of SiLU alone, and of another
activation with biases. Prints how many launches there were. With --overrun, one that writes behind
its result.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

import cupy
import ml_dtypes
import numpy

from cuswiglu.kernels.split import Split
from tests.gpu.cases import (
    CASES,
    DECODE_CASES,
    RESIDENT_CASES,
    SWAPPED_CASES,
    cut,
    launch,
    weights,
    widths,
)
from tests.gpu.drawing import drawer, weight


def launches(families):
    """(kernel, layout, wide, narrow): every width, two to a launch."""
    for kernel, layout in CASES:
        if kernel.family not in families:
            continue
        all_widths = widths(kernel, layout)
        for first in range(0, len(all_widths), 2):
            two = all_widths[first : first + 2]
            yield kernel, layout, two[0], two[-1]


def decode_launches(families):
    """(kernel, layout, split): tiles with a tail, of one product of rows and of two."""
    for kernel, layout in DECODE_CASES:
        if kernel.family in families:
            yield kernel, layout, Split(40, 1, kernel.ctas)
            yield kernel, layout, Split(72, 1 if kernel.gated else 8, 1)


def swapped_launches(families):
    """(kernel, layout, columns, rows of boxes): narrow and wide tiles, whole and cut along K."""
    for kernel, layout in SWAPPED_CASES:
        if kernel.family in families:
            yield from ((kernel, layout, *cut) for cut in ((2, 64), (3, 40), (4, 64)))


def overrun() -> None:
    """One launch whose result has memory for half of its rows: what a sanitizer must find."""
    kernel, layout = DECODE_CASES[0]
    x, gate, up = (cupy.ones((64, 64), ml_dtypes.bfloat16) for _ in range(3))
    memory = cupy.cuda.Memory(64 * 64)  # not of the pool, whose blocks are larger
    out = cupy.ndarray((64, 64), ml_dtypes.bfloat16, cupy.cuda.MemoryPointer(memory, 0))
    views = weights(layout, gate.T, up.T, kernel.gated)
    launch(cupy, kernel, x, views, out, split=Split(40, 1, kernel.ctas))
    cupy.cuda.runtime.deviceSynchronize()


def main(families: Collection[str]) -> None:
    count = 0
    draw = drawer(cupy)

    def run(kernel, layout, m, n, k, **options):
        nonlocal count
        x, gate, up = draw(m, k), weight(draw, k, n, layout), weight(draw, k, n, layout)
        out = cupy.empty((m, n), ml_dtypes.bfloat16)
        views = weights(layout, gate, up, kernel.gated)
        for ahead in (False, True):
            launch(cupy, kernel, x, views, out, weights_ahead=ahead, **options)
        # Copied: initcheck does not see what CuPy's kernels write, for it follows ours alone.
        first, second = cupy.asarray(numpy.ones((2, n), ml_dtypes.bfloat16))
        biases = first, second if kernel.gated else None
        extras = {"activation": "gelu"} if kernel.gated else {}
        launch(cupy, kernel, x, views, out, biases=biases, **extras, **options)
        count += 3

    for kernel, layout, wide, narrow in launches(families):
        n, columns = cut(wide, narrow, wide=2, narrow=2, last=24)
        run(kernel, layout, 328, n, 200, columns=columns)
    for kernel, layout, split in decode_launches(families):
        # K of more steps than the CTAs that share it, two tiles of tokens.
        run(kernel, layout, kernel.tokens + 3, 200, 1160, split=split)
    for kernel, layout, columns, box_rows in swapped_launches(families):

        def slicing(kernel, problem, at_once, columns=columns, box_rows=box_rows):
            tokens = kernel.tokens(problem.m, columns)
            return kernel.slicing(problem, tokens, box_rows, at_once)

        # K long enough to be cut in a cluster.
        run(kernel, layout, 328, 200, 1800, slicing=slicing)
    for kernel, layout in RESIDENT_CASES:
        if kernel.family in families:
            # So many rows that a CTA has several, and stages come around.
            run(kernel, layout, 20_000, 200, 200)
    cupy.cuda.runtime.deviceSynchronize()
    print(f"{count} launches")


if __name__ == "__main__":
    if "--overrun" in sys.argv:
        overrun()
    else:
        main(sys.argv[1:])
