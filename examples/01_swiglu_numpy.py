"""Compute SwiGLU and a gated MLP on the CPU, and compare them with FP64.

Shows: shapes and layouts of the arguments, and how exact results are.
Needs: NumPy and ml_dtypes, which come with cuswiglu.
Run:   python examples/01_swiglu_numpy.py
"""

import numpy as np
from ml_dtypes import bfloat16

import cuswiglu

TOKENS, HIDDEN, INTERMEDIATE = 16, 256, 704  # M, K, N


def relative_error(found, exact):
    """Norm of the difference from `exact`, over its norm."""
    return np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact)


def main():
    """Compute, print, check."""
    rng = np.random.default_rng(0)

    def matrix(rows, columns):
        """Draw N(0, 1) / sqrt(columns), as a layer's weights lie in a checkpoint: (out, in)."""
        return (rng.standard_normal((rows, columns)) * columns**-0.5).astype(bfloat16)

    x = rng.standard_normal((TOKENS, HIDDEN)).astype(bfloat16)
    gate_proj, up_proj = matrix(INTERMEDIATE, HIDDEN), matrix(INTERMEDIATE, HIDDEN)
    down_proj = matrix(HIDDEN, INTERMEDIATE)

    # cuswiglu takes (in, out): views, nothing is copied.
    hidden = cuswiglu.swiglu(x, gate_proj.T, up_proj.T)
    y = cuswiglu.mlp(x, gate_proj.T, up_proj.T, down_proj.T)
    print(f"x {x.shape}, hidden {hidden.shape}, y {y.shape}, all {y.dtype}")

    exact = [array.astype(np.float64) for array in (x, gate_proj.T, up_proj.T, down_proj.T)]
    gate, up = exact[0] @ exact[1], exact[0] @ exact[2]
    expected = gate / (1 + np.exp(-gate)) * up
    errors = relative_error(hidden, expected), relative_error(y, expected @ exact[3])
    print("relative errors: hidden {:.5f}, y {:.5f}".format(*errors))
    assert max(errors) < 2**-8  # BF16 has 8 bits of precision; y is rounded twice


if __name__ == "__main__":
    main()
