"""Compute SwiGLU on a GPU, from CuPy arrays, on a stream of its own.

Shows: CuPy in and out, `out=`, streams, and which kernel runs.
Needs: a CUDA GPU, and the extra cuda12 or cuda13. On a Hopper our kernels run, on others cuBLAS.
Run:   python examples/02_swiglu_cupy.py
"""

import cupy
import numpy as np
from ml_dtypes import bfloat16

import cuswiglu

TOKENS, HIDDEN, INTERMEDIATE = 512, 2048, 11008  # M; K and N of Qwen-2.5 3B


def main():
    """Compute, print, check."""
    rng = np.random.default_rng(0)

    def drawn(*shape):
        values = rng.standard_normal(shape, dtype=np.float32) * shape[-1] ** -0.5
        return cupy.asarray(values.astype(bfloat16))

    x, gate_proj, up_proj = (drawn(rows, HIDDEN) for rows in (TOKENS, INTERMEDIATE, INTERMEDIATE))
    # Work goes to the current CuPy stream, and the host does not wait for it.
    hidden = cuswiglu.swiglu(x, gate_proj.T, up_proj.T)

    # Another stream, and memory that is there already.
    stream, out = cupy.cuda.Stream(non_blocking=True), cupy.empty_like(hidden)
    stream.wait_event(cupy.cuda.get_current_stream().record())  # x was made on the current one
    cuswiglu.swiglu(x, gate_proj.T, up_proj.T, out=out, stream=stream)
    stream.synchronize()

    same = bool((hidden.view("uint16") == out.view("uint16")).all())
    print(f"hidden {hidden.shape}, {hidden.dtype}; the same bits from both streams: {same}")
    print(cuswiglu.explain(x, gate_proj.T, up_proj.T))
    assert same


if __name__ == "__main__":
    main()
