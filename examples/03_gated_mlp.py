"""Hold the weights of a gated MLP in a layer, and call it with batches of several sizes.

Shows: GatedMLP, another activation, a bias, and bits that do not depend on the batch.
Needs: nothing more on the CPU. With CuPy and a GPU it runs there; the last part needs a Hopper.
Run:   python examples/03_gated_mlp.py
"""

import numpy as np
from ml_dtypes import bfloat16

import cuswiglu

HIDDEN, INTERMEDIATE = 512, 1408


def array_library():
    """CuPy where there is a GPU, else NumPy."""
    try:
        import cupy
    except ImportError:
        return np
    return cupy if cupy.cuda.is_available() else np


def main():
    """Compute, print, check."""
    xp, rng = array_library(), np.random.default_rng(0)

    def drawn(*shape):
        return xp.asarray((rng.standard_normal(shape) * shape[-1] ** -0.5).astype(bfloat16))

    gate_proj, up_proj = drawn(INTERMEDIATE, HIDDEN), drawn(INTERMEDIATE, HIDDEN)
    down_proj = drawn(HIDDEN, INTERMEDIATE)

    layer = cuswiglu.GatedMLP(
        gate_proj.T, up_proj.T, down_proj.T, b_down=drawn(HIDDEN), activation="gelu_tanh"
    )
    for shape in ((1, HIDDEN), (4, 32, HIDDEN)):  # plans are made once for each kind of x
        print(f"x {shape}: y {layer(drawn(*shape)).shape}")
    print(layer)

    # Whatever else is in its batch, a token gets the same bits.
    steady = cuswiglu.GatedMLP(gate_proj.T, up_proj.T, down_proj.T, deterministic="batch")
    x = drawn(32, HIDDEN)
    try:
        together, alone = steady(x), steady(x[:1])
    except ValueError as error:
        print(f"skipped: {error}")
    else:
        assert bool((together[:1].view("uint16") == alone.view("uint16")).all())
        print("a token alone and among 32: the same bits")


if __name__ == "__main__":
    main()
