"""Run under compute-sanitizer: small launches of every instance, layout and width, with tails."""

from __future__ import annotations

import cupy
import ml_dtypes
from instances import CASES, cut, launch, weights, widths


def launches():
    """(kernel, layout, wide, narrow): every width, two to a launch."""
    for kernel, layout in CASES:
        all_widths = widths(kernel, layout)
        for first in range(0, len(all_widths), 2):
            two = all_widths[first : first + 2]
            yield kernel, layout, two[0], two[-1]


def main() -> None:
    generator = cupy.random.default_rng()

    def bf16(rows, columns):
        values = generator.standard_normal((rows, columns), dtype=cupy.float32)
        return values.astype(ml_dtypes.bfloat16)

    m, k = 328, 200
    for kernel, layout, wide, narrow in launches():
        n, columns = cut(wide, narrow, wide=2, narrow=2, last=24)
        x = bf16(m, k)
        if layout == "n":
            gate, up = bf16(k, n), bf16(k, n)
        else:
            gate, up = bf16(n, k).T, bf16(n, k).T
        out = cupy.empty((m, n), ml_dtypes.bfloat16)
        views = weights(layout, gate, up, kernel.gated)
        for ahead in (False, True):
            launch(cupy, kernel, x, views, out, weights_ahead=ahead, columns=columns)
    cupy.cuda.runtime.deviceSynchronize()


if __name__ == "__main__":
    main()
