"""Run under compute-sanitizer: one small launch of every instance and layout, with tails."""

from __future__ import annotations

import cupy
import ml_dtypes
from instances import CASES, launch, weights


def main() -> None:
    generator = cupy.random.default_rng()

    def bf16(rows, columns):
        values = generator.standard_normal((rows, columns), dtype=cupy.float32)
        return values.astype(ml_dtypes.bfloat16)

    m, n, k = 328, 280, 200
    for kernel, layout in CASES:
        x = bf16(m, k)
        if layout == "n":
            gate, up = bf16(k, n), bf16(k, n)
        else:
            gate, up = bf16(n, k).T, bf16(n, k).T
        out = cupy.empty((m, n), ml_dtypes.bfloat16)
        views = weights(layout, gate, up, kernel.gated)
        for ahead in (False, True):
            launch(cupy, kernel, x, views, out, weights_ahead=ahead)
    cupy.cuda.runtime.deviceSynchronize()


if __name__ == "__main__":
    main()
