"""Tests of load_safetensors, and of layer_count and iter_layers on safetensors checkpoints."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from cuswiglu.models import iter_layers, layer_count, load_safetensors
from tests.helpers.safetensors_files import K_OUT, K, N, assert_is_layer, mlp, save, save_sharded


def test_loads_the_asked_layer_of_one_file(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0), mlp(1))
    assert_is_layer(load_safetensors(path, 1), 1)


def test_loads_the_first_layer_by_default(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0), mlp(1))
    assert_is_layer(load_safetensors(path), 0)


def test_takes_a_path_given_as_str(tmp_path: Path) -> None:
    assert_is_layer(load_safetensors(str(save(tmp_path / "some.safetensors", mlp(0)))), 0)


def test_takes_a_numpy_integer_as_layer(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0), mlp(1))
    assert_is_layer(load_safetensors(path, np.int64(1)), 1)  # type: ignore[arg-type]


def test_arrays_are_bfloat16_and_transposed_views(tmp_path: Path) -> None:
    weights = load_safetensors(save(tmp_path / "some.safetensors", mlp(0)))
    for array, shape in ((weights.gate, (K, N)), (weights.up, (K, N)), (weights.down, (N, K_OUT))):
        assert array.dtype == ml_dtypes.bfloat16
        assert array.shape == shape
        assert array.T.flags.c_contiguous
        assert not array.flags.owndata


def test_source_names_the_file_and_the_layer(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(3))
    assert load_safetensors(path, 3).source == "some.safetensors layer 3"


def test_loads_from_a_directory_with_one_file(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", mlp(0))
    assert_is_layer(load_safetensors(tmp_path), 0)


@pytest.mark.parametrize("layer", [0, 1])
def test_loads_from_a_directory_with_shards(tmp_path: Path, layer: int) -> None:
    save_sharded(tmp_path)
    assert_is_layer(load_safetensors(tmp_path, layer), layer)


def test_loads_from_an_index_file(tmp_path: Path) -> None:
    assert_is_layer(load_safetensors(save_sharded(tmp_path), 0), 0)


def test_reads_only_the_shards_of_the_layer(tmp_path: Path) -> None:
    index = save_sharded(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    assert_is_layer(load_safetensors(index, 1), 1)


@pytest.mark.parametrize("prefix", ["", "language_model.model."])
def test_takes_other_prefixes(tmp_path: Path, prefix: str) -> None:
    path = save(tmp_path / "some.safetensors", mlp(0, prefix))
    assert_is_layer(load_safetensors(path), 0, prefix)


def test_layer_1_is_not_taken_for_layer_11(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(1), mlp(11))
    assert_is_layer(load_safetensors(path, 1), 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_other_floats_round_to_nearest_even(tmp_path: Path, dtype: npt.DTypeLike) -> None:
    tensors = mlp(0, dtype=dtype)
    step = 2.0**-7
    given = [1 + step / 2, 1 + step * 3 / 2, 1 + step * 5 / 8, -1 - step / 2]
    tensors["model.layers.0.mlp.gate_proj.weight"][0] = given
    weights = load_safetensors(save(tmp_path / "some.safetensors", tensors))
    expected = np.array([1, 1 + 2 * step, 1 + step, -1], dtype=np.float32)
    assert weights.gate.dtype == weights.down.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(weights.gate[:, 0].astype(np.float32), expected)


def test_layer_count_of_one_file(tmp_path: Path) -> None:
    assert layer_count(save(tmp_path / "some.safetensors", mlp(0), mlp(1), mlp(2))) == 3


def test_layer_count_of_shards(tmp_path: Path) -> None:
    save_sharded(tmp_path)
    assert layer_count(tmp_path) == 2


def test_iter_layers_gives_each_layer_in_order(tmp_path: Path) -> None:
    path = save(tmp_path / "some.safetensors", mlp(10), mlp(2), mlp(1))
    layers = list(iter_layers(path))
    assert len(layers) == 3
    for weights, layer in zip(layers, (1, 2, 10), strict=True):
        assert_is_layer(weights, layer)


def test_iter_layers_checks_the_file_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        iter_layers(tmp_path / "none.safetensors")
