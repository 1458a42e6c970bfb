"""Run under compute-sanitizer: one small launch of every instance and layout, with tails."""

from __future__ import annotations

import cupy
import ml_dtypes

import cuswiglu


def main() -> None:
    generator = cupy.random.default_rng()

    def bf16(rows, columns):
        values = generator.standard_normal((rows, columns), dtype=cupy.float32)
        return values.astype(ml_dtypes.bfloat16)

    m, n, k = 328, 280, 200
    for variant in cuswiglu.variants():
        for x, gate, up in (
            (bf16(m, k), bf16(n, k).T, bf16(n, k).T),
            (bf16(m, k), bf16(k, n), bf16(k, n)),
        ):
            cuswiglu.swiglu(x, gate, up, variant=variant.name)
    cupy.cuda.runtime.deviceSynchronize()


if __name__ == "__main__":
    main()
