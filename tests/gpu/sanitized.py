"""Run under compute-sanitizer: small launches with tails.

Of tiles every instance, layout and width; of decode kernels both families and layouts, one CTA and
as many as share K.
"""

from __future__ import annotations

import cupy
import ml_dtypes
from instances import CASES, DECODE_CASES, cut, launch, weights, widths

from cuswiglu.decode import Split

DECODE_TOKENS = (8, 64, 128)  # the fewest, the most that two CTAs an SM have, the most


def launches():
    """(kernel, layout, wide, narrow): every width, two to a launch."""
    for kernel, layout in CASES:
        all_widths = widths(kernel, layout)
        for first in range(0, len(all_widths), 2):
            two = all_widths[first : first + 2]
            yield kernel, layout, two[0], two[-1]


def decode_launches():
    """(kernel, layout, split): tiles with a tail, of one product of rows and of two."""
    for kernel, layout in DECODE_CASES:
        if kernel.tokens in DECODE_TOKENS:
            yield kernel, layout, Split(40, 1, kernel.ctas)
            yield kernel, layout, Split(72, 1 if kernel.gated else 8, 1)


def main() -> None:
    generator = cupy.random.default_rng()

    def bf16(rows, columns):
        values = generator.standard_normal((rows, columns), dtype=cupy.float32)
        return values.astype(ml_dtypes.bfloat16)

    def run(kernel, layout, m, n, k, **options):
        x = bf16(m, k)
        if layout == "n":
            gate, up = bf16(k, n), bf16(k, n)
        else:
            gate, up = bf16(n, k).T, bf16(n, k).T
        out = cupy.empty((m, n), ml_dtypes.bfloat16)
        views = weights(layout, gate, up, kernel.gated)
        for ahead in (False, True):
            launch(cupy, kernel, x, views, out, weights_ahead=ahead, **options)

    for kernel, layout, wide, narrow in launches():
        n, columns = cut(wide, narrow, wide=2, narrow=2, last=24)
        run(kernel, layout, 328, n, 200, columns=columns)
    for kernel, layout, split in decode_launches():
        # K of more steps than the CTAs that share it, two tiles of tokens.
        run(kernel, layout, kernel.tokens + 3, 200, 1160, split=split)
    cupy.cuda.runtime.deviceSynchronize()


if __name__ == "__main__":
    main()
