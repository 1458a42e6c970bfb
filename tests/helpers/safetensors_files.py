"""Small safetensors checkpoints for the tests of load_safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from cuswiglu.models import MLPWeights

Tensors = dict[str, npt.NDArray[Any]]
K, N, K_OUT = 4, 6, 5
LLAMA = {"model_type": "llama", "hidden_act": "silu"}


def mlp(layer: int, prefix: str = "model.", dtype: npt.DTypeLike = ml_dtypes.bfloat16) -> Tensors:
    rng = np.random.default_rng(layer)
    shapes = {"gate": (N, K), "up": (N, K), "down": (K_OUT, N)}
    return {
        f"{prefix}layers.{layer}.mlp.{name}_proj.weight": rng.standard_normal(shape).astype(dtype)
        for name, shape in shapes.items()
    }


def save(path: Path, *tensors: Tensors, config: Mapping[str, Any] | None = LLAMA) -> Path:
    """Write a checkpoint, and its config.json beside it unless `config` is None."""
    save_file({name: value for part in tensors for name, value in part.items()}, path)
    if config is not None:
        (path.parent / "config.json").write_text(json.dumps(config))
    return path


def fused(layer: int, prefix: str = "model.") -> Tensors:
    """The same weights as `mlp`, with gate and up in one tensor."""
    tensors, stem = mlp(layer, prefix), f"{prefix}layers.{layer}.mlp."
    gate_up = [tensors.pop(f"{stem}{name}_proj.weight") for name in ("gate", "up")]
    return {f"{stem}gate_up_proj.weight": np.concatenate(gate_up), **tensors}


def save_sharded(folder: Path) -> Path:
    """Two layers over two shards, with the up projection of layer 0 in the second one."""
    first, second = mlp(0), mlp(1)
    up = "model.layers.0.mlp.up_proj.weight"
    second[up] = first.pop(up)
    shards = {"model-00001-of-00002.safetensors": first, "model-00002-of-00002.safetensors": second}
    for shard, tensors in shards.items():
        save(folder / shard, tensors)
    return save_index(folder, {name: shard for shard in shards for name in shards[shard]})


def save_index(folder: Path, weight_map: object) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return path


def assert_is_layer(weights: MLPWeights, layer: int, prefix: str = "model.") -> None:
    stem = f"{prefix}layers.{layer}.mlp."
    tensors = mlp(layer, prefix)
    np.testing.assert_array_equal(weights.gate, tensors[f"{stem}gate_proj.weight"].T)
    np.testing.assert_array_equal(weights.up, tensors[f"{stem}up_proj.weight"].T)
    np.testing.assert_array_equal(weights.down, tensors[f"{stem}down_proj.weight"].T)
