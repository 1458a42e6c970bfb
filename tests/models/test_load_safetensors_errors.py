"""Tests of what load_safetensors refuses, and of what it says then."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cuswiglu.models import load_safetensors
from tests.helpers.safetensors_files import K_OUT, K, N, mlp, save, save_index, save_sharded


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"path: .*none\.safetensors does not exist"):
        load_safetensors(tmp_path / "none.safetensors")


def test_directory_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds neither model\.safetensors nor model\."):
        load_safetensors(tmp_path)


def test_missing_shard_is_named(tmp_path: Path) -> None:
    index = save_sharded(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model-00002-of-00002\.safetensors does not"):
        load_safetensors(index, 0)


@pytest.mark.parametrize("content", [b"", b"abc", b"not a safetensors file at all"])
def test_other_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"some\.safetensors is not a safetensors file"):
        load_safetensors(path)


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"some\.safetensors is not .* or it is damaged"):
        load_safetensors(path)


def test_index_that_is_not_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(b"\xff{")
    with pytest.raises(ValueError, match=r"index\.json is not valid JSON"):
        load_safetensors(path)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": []}'])
def test_index_without_a_weight_map_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"index\.json has no 'weight_map' object"):
        load_safetensors(path)


@pytest.mark.parametrize("shard", ["../up.safetensors", "/up.safetensors", "a/../../up", 3])
def test_shard_outside_the_directory_is_refused(tmp_path: Path, shard: object) -> None:
    index = save_index(tmp_path, dict.fromkeys(mlp(0), shard))
    with pytest.raises(ValueError, match="must be a file name inside the directory"):
        load_safetensors(index)


def test_shard_without_its_tensor_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "shard.safetensors", mlp(0))
    index = save_index(tmp_path, dict.fromkeys([*mlp(0), *mlp(1)], "shard.safetensors"))
    with pytest.raises(ValueError, match=r"layers\.1\.mlp\.gate_proj\.weight is in shard\."):
        load_safetensors(index, 1)


def test_layer_out_of_range_says_which_there_are(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0), mlp(1), mlp(2))
    with pytest.raises(ValueError, match=r"no layer 3 .* 3 layers: 0 to 2"):
        load_safetensors(path, 3)


def test_layer_missing_between_others_says_which_there_are(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0), mlp(1), mlp(4))
    with pytest.raises(ValueError, match=r"no layer 3 .* 3 layers: 0, 1, 4"):
        load_safetensors(path, 3)


def test_only_layer_is_named_when_another_is_asked(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(2))
    with pytest.raises(ValueError, match=r"no layer 0 .* 1 layer: 2"):
        load_safetensors(path, 0)


def test_file_without_an_mlp_lists_its_tensors(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", {"lm_head.weight": np.zeros((2, 2), np.float32)})
    with pytest.raises(ValueError, match=r"no layer with a gated MLP.* holds lm_head\.weight:"):
        load_safetensors(path)


def test_expert_layers_are_not_taken_for_a_gated_mlp(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.experts.0.gate_proj.weight"
    path = save(tmp_path / "some.safetensors", {name: np.zeros((2, 2), np.float32)})
    with pytest.raises(ValueError, match="no layer with a gated MLP"):
        load_safetensors(path)


def test_incomplete_layer_names_what_it_lacks(tmp_path: Path) -> None:
    tensors = mlp(0)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    path = save(tmp_path / "some.safetensors", tensors)
    with pytest.raises(ValueError, match=r"lacks model\.layers\.0\.mlp\.up_proj\.weight;"):
        load_safetensors(path)


def test_ambiguous_layer_lists_the_candidates(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0, "text."), mlp(0, "vision."))
    with pytest.raises(ValueError, match=r"ambiguous.*text\.layers\.0.*vision\.layers\.0"):
        load_safetensors(path)


@pytest.mark.parametrize(("dtype", "name"), [(np.int8, "I8"), (np.float64, "F64")])
def test_other_dtype_is_refused(tmp_path: Path, dtype: npt.DTypeLike, name: str) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0, dtype=dtype))
    with pytest.raises(ValueError, match=rf"gate_proj\.weight in .* {name}; only BF16, F16 and"):
        load_safetensors(path)


@pytest.mark.parametrize(
    ("name", "shape"), [("up", (N, K + 1)), ("down", (K_OUT, N + 1)), ("down", (N,))]
)
def test_shapes_that_do_not_fit_are_refused(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    tensors = mlp(0)
    tensors[f"model.layers.0.mlp.{name}_proj.weight"] = np.zeros(shape, np.float32)
    path = save(tmp_path / "some.safetensors", tensors)
    with pytest.raises(ValueError, match=r"gate has shape \(4, 6\), up \(.*\) and down \(.*\);"):
        load_safetensors(path)


@pytest.mark.parametrize("layer", [1.0, "1", None, True])
def test_layer_of_another_type_is_refused(tmp_path: Path, layer: Any) -> None:
    with pytest.raises(TypeError, match="layer must be an int, got"):
        load_safetensors(tmp_path, layer)


def test_negative_layer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="layer must be 0 or more, got -1"):
        load_safetensors(tmp_path, -1)


def test_without_the_extra_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0))
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"pip install 'cuswiglu\[models\]'"):
        load_safetensors(path)
