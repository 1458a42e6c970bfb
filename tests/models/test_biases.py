"""Biases of an MLP's three products, read where a checkpoint has them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import cuswiglu
from cuswiglu import GatedMLP
from cuswiglu.models import load_gguf, load_safetensors
from tests.helpers import gguf_files
from tests.helpers.safetensors_files import K_OUT, K, N, Tensors, assert_is_layer, fused, mlp, save

BF16 = ml_dtypes.bfloat16
SIZES = {"gate": N, "up": N, "down": K_OUT}


def drawn(*names: str) -> Tensors:
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(SIZES[name]).astype(BF16) for name in names}


def named(biases: Tensors) -> Tensors:
    return {f"model.layers.0.mlp.{name}_proj.bias": bias for name, bias in biases.items()}


@pytest.mark.parametrize("names", [("gate",), ("up", "down"), ("gate", "up", "down")], ids="+".join)
def test_the_biases_that_there_are_are_read(tmp_path: Path, names: tuple[str, ...]) -> None:
    biases = drawn(*names)
    path = save(tmp_path / "some.safetensors", mlp(0), mlp(1), named(biases))
    weights = load_safetensors(path)
    assert_is_layer(weights, 0)
    for name in SIZES:
        found = getattr(weights, f"b_{name}")
        if name in names:
            np.testing.assert_array_equal(found, biases[name])
        else:
            assert found is None
    assert load_safetensors(path, 1).b_gate is None


def test_one_bias_holds_gates_and_ups_where_one_weight_does(tmp_path: Path) -> None:
    biases = drawn("gate", "up")
    both = np.concatenate([biases["gate"], biases["up"]])
    more = {"model.layers.0.mlp.gate_up_proj.bias": both}
    weights = load_safetensors(save(tmp_path / "some.safetensors", fused(0), more))
    assert_is_layer(weights, 0)
    np.testing.assert_array_equal(weights.b_gate, biases["gate"])
    np.testing.assert_array_equal(weights.b_up, biases["up"])
    assert weights.b_down is None


def test_a_layer_adds_them(tmp_path: Path) -> None:
    biases = drawn("gate", "up", "down")
    path = save(tmp_path / "some.safetensors", mlp(0), named(biases))
    layer = GatedMLP.from_safetensors(path, device="cpu")
    x = np.random.default_rng(1).standard_normal((3, K)).astype(BF16)
    expected = cuswiglu.mlp(
        *(x, layer.w_gate, layer.w_up, layer.w_down),
        **{f"b_{name}": bias for name, bias in biases.items()},
    )
    np.testing.assert_array_equal(layer(x), expected)
    assert (expected != cuswiglu.mlp(x, layer.w_gate, layer.w_up, layer.w_down)).any()


def test_those_of_a_gguf_file_are_rounded_to_bf16(tmp_path: Path) -> None:
    bias = np.random.default_rng(7).standard_normal(gguf_files.K_OUT).astype(np.float32)
    tensors = gguf_files.mlp(0) | {"blk.0.ffn_down.bias": bias}
    weights = load_gguf(gguf_files.save(tmp_path / "some.gguf", tensors))
    np.testing.assert_array_equal(weights.b_down, bias.astype(BF16))
    assert weights.b_gate is weights.b_up is None


@pytest.mark.parametrize("shape", [(N + 1,), (1, N)], ids=str)
def test_a_bias_of_another_shape_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    more = {"model.layers.0.mlp.up_proj.bias": np.zeros(shape, BF16)}
    path = save(tmp_path / "some.safetensors", mlp(0), more)
    with pytest.raises(ValueError, match=r"the bias of up has shape .* it needs \(6,\)"):
        load_safetensors(path)


def test_a_fused_bias_of_another_shape_is_refused(tmp_path: Path) -> None:
    more = {"model.layers.0.mlp.gate_up_proj.bias": np.zeros(N, BF16)}
    path = save(tmp_path / "some.safetensors", fused(0), more)
    with pytest.raises(ValueError, match=r"gate_up_proj\.bias .* has shape \(6,\).* 12 rows"):
        load_safetensors(path)
