"""Load the MLP of one layer from a checkpoint, and call it.

Shows: from_safetensors and from_gguf, which find the weights, the biases and the activation.
Needs: the extra models. With CuPy and a GPU the weights go there, else they stay on the CPU.
Run:   python examples/04_checkpoint.py [FILE [LAYER]]
       FILE is a .gguf, a .safetensors or its folder. Without it, a small checkpoint is made.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from ml_dtypes import bfloat16

import cuswiglu
from cuswiglu.models import layer_count


def small_checkpoint(folder):
    """Write two layers, named as Llama's are, with K = 128 and N = 352; returns the file."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    shapes = {"gate": (352, 128), "up": (352, 128), "down": (128, 352)}
    tensors = {
        f"model.layers.{layer}.mlp.{name}_proj.weight": rng.standard_normal(shape).astype(bfloat16)
        for layer in range(2)
        for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "llama", "hidden_act": "silu"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "model.safetensors"


def array_library():
    """CuPy where there is a GPU, else NumPy."""
    try:
        import cupy
    except ImportError:
        return np
    return cupy if cupy.cuda.is_available() else np


def main(path, layer=0):
    """Load, call, print."""
    xp = array_library()
    read = cuswiglu.GatedMLP.from_safetensors
    if path.suffix == ".gguf":
        read = cuswiglu.GatedMLP.from_gguf
    mlp = read(path, layer, device="cpu" if xp is np else "cuda")
    print(f"layer {layer} of {layer_count(path)} in {path.name}: activation {mlp.activation}")
    x = xp.asarray(np.random.default_rng(0).standard_normal((8, mlp.k)).astype(bfloat16))
    y = mlp(x)
    print(f"x {x.shape}, y {y.shape}, {y.dtype}")
    print(mlp)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(small_checkpoint(Path(made)))
