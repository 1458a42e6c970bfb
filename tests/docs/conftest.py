"""Pages run as users have it: with the packaged tuned table, `import cupy`, and model files."""

from __future__ import annotations

import sys
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

LAYERS, K, N = 2, 64, 192


@pytest.fixture(autouse=True)
def _no_tuned_tables(monkeypatch, _nowhere):
    """Selection has the packaged table, and no user's."""
    from cuswiglu.selection import tuned

    monkeypatch.setenv("XDG_CACHE_HOME", str(_nowhere))
    tuned.tables.cache_clear()
    yield
    tuned.tables.cache_clear()


@pytest.fixture
def cupy_here(gpu, monkeypatch):
    """`import cupy` gives arrays in host memory on a pretended H200: see helpers/host_cupy.py."""
    from tests.helpers.device_arrays import cupy, on_device
    from tests.helpers.host_arrays import full

    stand_in = ModuleType("cupy")
    stand_in.__getattr__ = lambda name: getattr(gpu.cupy, name)
    stand_in.ndarray = cupy.ndarray
    stand_in.asarray = gpu.cupy.asarray = lambda array: on_device(full(array))
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    with gpu.cupy.cuda.Device(0):
        yield gpu


@pytest.fixture
def model_folder(tmp_path, monkeypatch):
    """The current folder, with model.safetensors, config.json and model.gguf of two layers."""
    from tests.helpers import gguf_files, safetensors_files

    rng = np.random.default_rng(0)
    shapes = {"gate": (N, K), "up": (N, K), "down": (K, N)}
    drawn = {
        (layer, name): rng.standard_normal(shape).astype(np.float32)
        for layer in range(LAYERS)
        for name, shape in shapes.items()
    }
    safetensors_files.save(
        tmp_path / "model.safetensors",
        {
            f"model.layers.{layer}.mlp.{name}_proj.weight": values.astype(ml_dtypes.bfloat16)
            for (layer, name), values in drawn.items()
        },
    )
    gguf_files.save(
        tmp_path / "model.gguf",
        {f"blk.{layer}.ffn_{name}.weight": values for (layer, name), values in drawn.items()},
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path
