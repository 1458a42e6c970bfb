"""Small GGUF files for the tests of load_gguf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

Array = npt.NDArray[Any]
K, N, K_OUT = 32, 64, 96
SHAPES = {"gate": (N, K), "up": (N, K), "down": (K_OUT, N)}


def mlp(layer: int) -> dict[str, Array]:
    rng = np.random.default_rng(layer)
    return {
        f"blk.{layer}.ffn_{name}.weight": rng.standard_normal(shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }


def save(
    path: Path,
    tensors: dict[str, Array],
    types: dict[str, Type] | None = None,
    order: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE,
    architecture: str = "llama",
) -> Path:
    """Write a GGUF file; `types` says which arrays are the raw bytes of another type."""
    writer = gguf.GGUFWriter(path, architecture, endianess=order)
    for name, value in tensors.items():
        writer.add_tensor(name, value, raw_dtype=(types or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
