"""Tests of the activation that a checkpoint is for: loaded with it, if it is computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import cuswiglu
from cuswiglu import GatedMLP
from cuswiglu.models import _architectures, iter_layers, layer_count, load_gguf, load_safetensors
from tests.helpers import gguf_files
from tests.helpers.safetensors_files import assert_is_layer, mlp, save


@pytest.fixture(autouse=True)
def _no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


GELU = {
    "Gemma": {"model_type": "gemma", "hidden_act": "gelu", "hidden_activation": None},
    "Gemma 2": {"model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh"},
    "Gemma 3, silent": {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}},
    "Gemma 3, one word": {"model_type": "gemma3"},
    "hidden_activation first": {"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"},
    "in text_config": {"hidden_act": "silu", "text_config": {"hidden_act": "gelu_pytorch_tanh"}},
}


@pytest.mark.parametrize("case", GELU)
def test_gemma_is_loaded_with_the_gelu_that_it_means(tmp_path: Path, case: str) -> None:
    path = save(tmp_path / "model.safetensors", mlp(0), config=GELU[case])
    weights = load_safetensors(path)
    assert_is_layer(weights, 0)
    assert weights.activation == "gelu_tanh"


NAMES = {
    "silu": ["silu", "swish"],
    "gelu": ["gelu"],
    "gelu_tanh": ["gelu_tanh", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"],
    "relu": ["relu"],
    "sigmoid": ["sigmoid"],
    "identity": ["linear"],
}


@pytest.mark.parametrize(("meant", "name"), [(m, name) for m in NAMES for name in NAMES[m]])
def test_names_of_configurations_are_those_of_what_is_computed(
    tmp_path: Path, meant: str, name: str
) -> None:
    config = {"model_type": "never heard of", "hidden_act": name}
    path = save(tmp_path / "model.safetensors", mlp(0), config=config)
    assert load_safetensors(path).activation == meant


def test_a_layer_of_gemma_computes_its_activation(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors", mlp(0), config=GELU["Gemma 2"])
    layer = GatedMLP.from_safetensors(path, device="cpu")
    x = np.random.default_rng(1).standard_normal((3, layer.k)).astype(layer.w_gate.dtype)
    weights = layer.w_gate, layer.w_up, layer.w_down
    assert layer.activation == "gelu_tanh"
    np.testing.assert_array_equal(layer(x), cuswiglu.mlp(x, *weights, activation="gelu_tanh"))


OTHER = {"model_type": "some", "hidden_act": "quick_gelu"}


def test_a_model_with_another_activation_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors", mlp(0), config=OTHER)
    for function in (load_safetensors, layer_count, iter_layers):
        with pytest.raises(ValueError, match="uses the activation quick_gelu"):
            function(path)


def test_the_error_names_model_activation_source_and_what_is_computed(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors", mlp(0), config=OTHER)
    with pytest.raises(ValueError) as caught:
        load_safetensors(path)
    assert str(caught.value).startswith(
        f"path: {path} is of some, whose MLP uses the activation quick_gelu (says config.json, "
        "hidden_act); cuswiglu computes silu, gelu, gelu_tanh, relu, sigmoid, identity, swish, "
    )
    assert str(caught.value).endswith(": pass a model that uses one of them")


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3", "hidden_act": "silu"},
        {"model_type": "never heard of", "hidden_act": "swish"},
        {"model_type": "mistral"},
        {"model_type": "gemma3", "text_config": {"hidden_activation": "silu"}},
        {"model_type": "llava", "text_config": {"model_type": "llama"}},
        {"vision_config": {"hidden_act": "gelu"}, "hidden_act": "silu"},
    ],
)
def test_a_model_with_silu_is_loaded(tmp_path: Path, config: dict[str, Any]) -> None:
    path = save(tmp_path / "model.safetensors", mlp(0), config=config)
    weights = load_safetensors(path)
    assert_is_layer(weights, 0)
    assert weights.activation == "silu"


def test_gemma3n_drops_most_of_the_gate_and_is_refused(tmp_path: Path) -> None:
    text = {"model_type": "gemma3n_text", "hidden_activation": "gelu_pytorch_tanh"}
    path = save(tmp_path / "model.safetensors", mlp(0), config={"text_config": text})
    with pytest.raises(ValueError, match="gelu_tanh of the largest only"):
        load_safetensors(path)


def test_a_configuration_that_does_not_say_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors", mlp(0), config={"model_type": "novel"})
    with pytest.raises(ValueError, match=r"config\.json does not say .*'novel'.* add hidden_act"):
        load_safetensors(path)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[1]"])
def test_a_damaged_configuration_is_refused(tmp_path: Path, content: bytes) -> None:
    path = save(tmp_path / "model.safetensors", mlp(0))
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"config\.json (cannot|is not valid|holds no).*get it again"
    ):
        load_safetensors(path)


def test_without_a_configuration_silu_is_assumed_with_a_warning(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors", mlp(0), config=None)
    with pytest.warns(
        UserWarning, match=r"takes silu: put the model's config\.json beside"
    ) as told:
        assert_is_layer(load_safetensors(path), 0)
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="takes silu") as told:
        GatedMLP.from_safetensors(path, device="cpu")
    assert told[0].filename == __file__


def test_gemmas_norms_give_it_away_without_a_configuration(tmp_path: Path) -> None:
    norm = {"model.layers.0.pre_feedforward_layernorm.weight": np.zeros(4, np.float32)}
    path = save(tmp_path / "model.safetensors", mlp(0), norm, config=None)
    assert load_safetensors(path).activation == "gelu_tanh"


@pytest.mark.parametrize("architecture", ["gemma", "gemma2", "gemma3"])
def test_a_gguf_file_of_gemma_is_loaded_with_gelu(tmp_path: Path, architecture: str) -> None:
    path = gguf_files.save(tmp_path / "some.gguf", gguf_files.mlp(0), architecture=architecture)
    assert load_gguf(path).activation == "gelu_tanh"
    assert GatedMLP.from_gguf(path, device="cpu").activation == "gelu_tanh"


def test_a_gguf_file_of_gemma3n_is_refused(tmp_path: Path) -> None:
    path = gguf_files.save(tmp_path / "some.gguf", gguf_files.mlp(0), architecture="gemma3n")
    with pytest.raises(ValueError, match=r"is of gemma3n, .*gelu_tanh.* its architecture"):
        load_gguf(path)


@pytest.mark.parametrize("architecture", ["llama", "mistral3", "qwen2", "qwen3"])
def test_a_gguf_file_with_silu_is_loaded(tmp_path: Path, architecture: str) -> None:
    path = gguf_files.save(tmp_path / "some.gguf", gguf_files.mlp(0), architecture=architecture)
    assert load_gguf(path).activation == "silu"


def test_a_gguf_architecture_that_is_not_known_lists_those_that_are(tmp_path: Path) -> None:
    path = gguf_files.save(tmp_path / "some.gguf", gguf_files.mlp(0), architecture="novel")
    with pytest.raises(
        ValueError, match=r"architecture 'novel'.*known are .*llama.* add it to ACT"
    ):
        load_gguf(path)


def test_a_part_of_a_split_gguf_model_warns(tmp_path: Path) -> None:
    class Part(gguf.GGUFWriter):  # only the first part has the model's metadata
        def add_architecture(self) -> None:
            self.add_uint16("split.no", 1)

    writer = Part(tmp_path / "some.gguf", "gemma")
    for name, value in gguf_files.mlp(0).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.warns(UserWarning, match=r"takes silu: merge the parts"):
        load_gguf(tmp_path / "some.gguf")


def test_every_row_of_the_table_has_an_activation_with_a_name_of_its_own() -> None:
    rows, computed = set(_architectures.ACTIVATION_OF.values()), set(_architectures.SUPPORTED)
    assert not rows & set(_architectures.ALIASES)
    assert rows - computed == {_architectures._SPARSE}
    assert set(_architectures.ALIASES.values()) <= computed
