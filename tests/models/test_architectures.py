"""Tests of the table of names: each family's tensors, in both formats."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from cuswiglu.models import iter_layers, layer_count, load_gguf, load_safetensors
from tests.helpers import gguf_files
from tests.helpers.safetensors_files import (
    K_OUT,
    K,
    N,
    Tensors,
    assert_is_layer,
    fused,
    mlp,
    save,
    save_index,
)


def renamed(names: dict[str, str], layer: int = 0) -> Tensors:
    """The weights of `mlp`, as another family calls them: {gate: name, ...}."""
    held = mlp(layer)
    return {
        name: held[f"model.layers.{layer}.mlp.{part}_proj.weight"] for part, name in names.items()
    }


# Gate and up in one tensor


def test_a_fused_gate_up_is_gate_then_up(tmp_path: Path) -> None:
    assert_is_layer(load_safetensors(save(tmp_path / "some.safetensors", fused(0))), 0)


def test_the_halves_of_a_fused_gate_up_are_views_of_one_array(tmp_path: Path) -> None:
    weights = load_safetensors(save(tmp_path / "some.safetensors", fused(0)))
    for half in (weights.gate, weights.up):
        assert half.shape == (K, N)
        assert half.T.flags.c_contiguous
        assert half.base is not None
    between = (
        weights.up.__array_interface__["data"][0] - weights.gate.__array_interface__["data"][0]
    )
    assert between == N * K * 2
    assert np.shares_memory(weights.gate.base, weights.up)


def test_fused_layers_are_counted_and_iterated(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", fused(0), fused(1))
    assert layer_count(path) == 2
    for layer, weights in enumerate(iter_layers(path)):
        assert_is_layer(weights, layer)


def test_a_fused_gate_up_in_another_shard_than_down(tmp_path: Path) -> None:
    tensors = fused(0)
    gate_up = "model.layers.0.mlp.gate_up_proj.weight"
    save(tmp_path / "first.safetensors", {gate_up: tensors.pop(gate_up)})
    save(tmp_path / "second.safetensors", tensors)
    shards = dict.fromkeys(tensors, "second.safetensors") | {gate_up: "first.safetensors"}
    assert_is_layer(load_safetensors(save_index(tmp_path, shards)), 0)


def test_a_fused_gate_up_of_the_wrong_height_is_refused(tmp_path: Path) -> None:
    tensors = fused(0)
    tensors["model.layers.0.mlp.gate_up_proj.weight"] = np.zeros((2 * N - 2, K), np.float32)
    path = save(tmp_path / "some.safetensors", tensors)
    with pytest.raises(ValueError, match=r"gate_up_proj\.weight in .* shape \(10, 4\).* 12 rows"):
        load_safetensors(path)


def test_phi3_gguf_holds_gate_and_up_in_ffn_up(tmp_path: Path) -> None:
    tensors = gguf_files.mlp(0)
    gate, up = (tensors.pop(f"blk.0.ffn_{name}.weight") for name in ("gate", "up"))
    tensors["blk.0.ffn_up.weight"] = np.concatenate([gate, up])
    path = gguf_files.save(tmp_path / "phi3.gguf", tensors, architecture="phi3")
    weights = load_gguf(path)
    np.testing.assert_array_equal(weights.gate.T, gate.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(weights.up.T, up.astype(ml_dtypes.bfloat16))
    assert np.shares_memory(weights.gate.base, weights.up)


def test_a_gguf_mlp_without_a_gate_is_refused(tmp_path: Path) -> None:
    tensors = gguf_files.mlp(0)
    del tensors["blk.0.ffn_gate.weight"]
    path = gguf_files.save(tmp_path / "some.gguf", tensors)
    with pytest.raises(
        ValueError, match=r"ffn_up\.weight in .* shape \(64, 32\).*128 rows.*no gate"
    ):
        load_gguf(path)


# Other names and prefixes


def test_names_that_makers_publish_under(tmp_path: Path) -> None:
    stem = "layers.0.feed_forward."
    tensors = renamed(
        {"gate": f"{stem}w1.weight", "up": f"{stem}w3.weight", "down": f"{stem}w2.weight"}
    )
    path = save(tmp_path / "consolidated.safetensors", tensors)
    assert_is_layer(load_safetensors(path), 0)


@pytest.mark.parametrize(
    "prefix", ["", "language_model.", "language_model.model.", "model.language_model."]
)
def test_fused_names_take_prefixes_too(tmp_path: Path, prefix: str) -> None:
    path = save(tmp_path / "some.safetensors", fused(0, prefix))
    assert_is_layer(load_safetensors(path), 0, prefix)


def test_the_language_model_is_taken_where_a_vision_model_has_such_names_too(
    tmp_path: Path,
) -> None:
    vision = {name: value[::-1] + 1 for name, value in mlp(0, "vision_tower.").items()}
    path = save(tmp_path / "some.safetensors", vision, mlp(0, "language_model.model."))
    assert_is_layer(load_safetensors(path), 0, "language_model.model.")


# What is recognised, and refused


EXPERTS = {
    "Mixtral": "model.layers.1.block_sparse_moe.gate.weight",
    "Qwen": "model.layers.1.mlp.experts.7.gate_proj.weight",
    "shared": "model.layers.1.mlp.shared_expert.gate_proj.weight",
    "Llama 4": "model.layers.1.feed_forward.experts.gate_up_proj",
}


@pytest.mark.parametrize("family", EXPERTS)
def test_a_mixture_of_experts_is_named_as_such(tmp_path: Path, family: str) -> None:
    expert: Tensors = {EXPERTS[family]: np.zeros((2, 2), np.float32)}
    path = save(tmp_path / "some.safetensors", expert)
    with pytest.raises(ValueError, match=r"no layer with a gated MLP: it is a mixture of experts"):
        layer_count(path)
    path = save(tmp_path / "some.safetensors", mlp(0), expert)
    assert_is_layer(load_safetensors(path, 0), 0)  # as the first layers of DeepSeek
    with pytest.raises(ValueError, match=r"no layer 1 .* mixture of experts.* has 1 layer: 0"):
        load_safetensors(path, 1)
    path = save(tmp_path / "some.safetensors", mlp(1), expert)
    with pytest.raises(ValueError, match=r"layer 1 of .* is a mixture of experts"):
        load_safetensors(path, 1)


def test_experts_in_gguf_are_refused_beside_a_dense_mlp(tmp_path: Path) -> None:
    router = {"blk.0.ffn_gate_inp.weight": np.zeros((4, 32), np.float32)}
    path = gguf_files.save(tmp_path / "some.gguf", gguf_files.mlp(0) | router)
    with pytest.raises(ValueError, match=r"is a mixture of experts.* holds blk\.0\.ffn_gate_inp"):
        load_gguf(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("router.bias", "has more in its MLP than gate, up and down"),
        ("up_proj.lora_A.weight", "has an adapter that is not merged"),
        ("gate_proj.weight_scale", "is quantised"),
        ("gate_proj.weight_scale_inv", "is quantised"),
        ("down_proj.weight.absmax", "is quantised"),
        ("act_fn.alpha", "has more in its MLP than gate, up and down"),
    ],
)
def test_what_else_the_mlp_has_is_refused(tmp_path: Path, name: str, words: str) -> None:
    more: Tensors = {f"model.layers.0.mlp.{name}": np.zeros(2, np.float32)}
    path = save(tmp_path / "some.safetensors", mlp(0), mlp(1), more)
    with pytest.raises(ValueError, match=rf"layer 0 of .* {words}.*holds model\.layers\.0\.mlp\."):
        load_safetensors(path, 0)
    assert_is_layer(load_safetensors(path, 1), 1)


@pytest.mark.parametrize(
    ("name", "words"),
    [("down.scale", "quantised"), ("sub_norm.weight", "more in its MLP")],
)
def test_what_else_a_gguf_mlp_has_is_refused(tmp_path: Path, name: str, words: str) -> None:
    more = {f"blk.0.ffn_{name}": np.zeros(32, np.float32)}
    path = gguf_files.save(tmp_path / "some.gguf", gguf_files.mlp(0) | more)
    with pytest.raises(ValueError, match=rf"layer 0 of .* {words}.* holds blk\.0\.ffn_"):
        load_gguf(path)


def test_norms_around_a_gguf_mlp_are_no_part_of_it(tmp_path: Path) -> None:
    norms = {
        f"blk.0.{name}.weight": np.zeros(32, np.float32) for name in ("ffn_norm", "post_ffw_norm")
    }
    path = gguf_files.save(tmp_path / "some.gguf", gguf_files.mlp(0) | norms)
    assert load_gguf(path).gate.shape == (gguf_files.K, gguf_files.N)


def test_weights_packed_by_a_quantiser_are_listed(tmp_path: Path) -> None:
    tensors: Tensors = {"model.layers.0.mlp.gate_proj.qweight": np.zeros((2, 2), np.int32)}
    path = save(tmp_path / "some.safetensors", tensors)
    with pytest.raises(ValueError, match=r"holds model\.layers\.0\.mlp\.gate_proj\.qweight"):
        load_safetensors(path)


# What is there is listed


def test_a_wrong_file_lists_those_beside_it(tmp_path: Path) -> None:
    save(tmp_path / "model-00001-of-00001.safetensors", mlp(0))
    with pytest.raises(FileNotFoundError, match=r"holds model-00001-of-00001\.safetensors$"):
        load_safetensors(tmp_path / "model.safetensors")


def test_a_folder_without_an_index_lists_its_files(tmp_path: Path) -> None:
    for number in range(10):
        save(tmp_path / f"part-{number}.safetensors", mlp(0))
    with pytest.raises(FileNotFoundError, match=r"neither .*part-0\.safetensors, .* and 2 more"):
        load_safetensors(tmp_path)


def test_a_wrong_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no directory .*nowhere"):
        load_gguf(tmp_path / "nowhere" / "some.gguf")


def test_names_like_an_mlps_are_listed_before_others(tmp_path: Path) -> None:
    tensors: Tensors = {
        "embed.weight": np.zeros((2, 2), np.float32),
        "h.0.mlp.c_fc.weight": np.zeros((2, 2), np.float32),
    }
    path = save(tmp_path / "some.safetensors", tensors)
    with pytest.raises(
        ValueError, match=r"named like 'layers\.0\.mlp.*holds h\.0\.mlp\.c_fc\.weight:"
    ):
        load_safetensors(path)


def test_k_out_of_a_fused_layer_is_downs(tmp_path: Path) -> None:
    assert load_safetensors(save(tmp_path / "some.safetensors", fused(0))).down.shape == (N, K_OUT)
