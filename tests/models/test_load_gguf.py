"""Tests of load_gguf, and of layer_count and iter_layers on GGUF files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType as Type

from cuswiglu.models import iter_layers, layer_count, load_gguf
from tests.helpers.gguf_files import K_OUT, K, N, mlp, save

Array = npt.NDArray[Any]


def round_to_bf16(values: Array) -> Array:
    """Round float32 to the nearest BF16, ties to even, on the bits."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype(np.uint16).view(ml_dtypes.bfloat16)


def q8_0(rows: int, columns: int) -> tuple[Array, Array]:
    """Return random Q8_0 rows as bytes, and their values."""
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.01, 0.1, (rows, columns // 32, 1)).astype(np.float16)
    quants = rng.integers(-127, 128, (rows, columns // 32, 32)).astype(np.int8)
    raw = np.concatenate([scale.view(np.uint8), quants.view(np.uint8)], axis=-1)
    values = scale.astype(np.float32) * quants
    return raw.reshape(rows, -1), values.reshape(rows, columns)


def q4_1(rows: int, columns: int) -> tuple[Array, Array]:
    """Return random Q4_1 rows as bytes, and their values."""
    rng = np.random.default_rng(0)
    scale, least = rng.uniform(-1, 1, (2, rows, columns // 32, 1)).astype(np.float16)
    quants = rng.integers(0, 16, (rows, columns // 32, 32)).astype(np.uint8)
    packed = quants[..., :16] | (quants[..., 16:] << 4)
    raw = np.concatenate([scale.view(np.uint8), least.view(np.uint8), packed], axis=-1)
    values = scale.astype(np.float32) * quants + least.astype(np.float32)
    return raw.reshape(rows, -1), values.reshape(rows, columns)


def test_loads_f32_rounded_to_nearest_even(tmp_path: Path) -> None:
    tensors = mlp(0)
    step = np.float32(2.0**-7)
    tensors["blk.0.ffn_gate.weight"][0, :2] = [1 + step / 2, 1 + step * 3 / 2]
    weights = load_gguf(save(tmp_path / "some.gguf", tensors))
    np.testing.assert_array_equal(weights.gate.T, round_to_bf16(tensors["blk.0.ffn_gate.weight"]))
    np.testing.assert_array_equal(weights.up.T, round_to_bf16(tensors["blk.0.ffn_up.weight"]))
    np.testing.assert_array_equal(weights.down.T, round_to_bf16(tensors["blk.0.ffn_down.weight"]))


def test_loads_f16(tmp_path: Path) -> None:
    tensors = {name: value.astype(np.float16) for name, value in mlp(0).items()}
    weights = load_gguf(save(tmp_path / "some.gguf", tensors))
    np.testing.assert_array_equal(weights.down.T, round_to_bf16(tensors["blk.0.ffn_down.weight"]))


def test_loads_bf16_unchanged(tmp_path: Path) -> None:
    tensors = {name: round_to_bf16(value) for name, value in mlp(0).items()}
    raw = {name: value.view(np.uint8) for name, value in tensors.items()}
    path = save(tmp_path / "some.gguf", raw, dict.fromkeys(raw, Type.BF16))
    np.testing.assert_array_equal(load_gguf(path).up.T, tensors["blk.0.ffn_up.weight"])


@pytest.mark.parametrize(("make", "kind"), [(q8_0, Type.Q8_0), (q4_1, Type.Q4_1)])
def test_dequantises(tmp_path: Path, make: Any, kind: Type) -> None:
    tensors, name = mlp(0), "blk.0.ffn_down.weight"
    tensors[name], values = make(K_OUT, N)
    weights = load_gguf(save(tmp_path / "some.gguf", tensors, {name: kind}))
    np.testing.assert_array_equal(weights.down.T, round_to_bf16(values))


def test_arrays_are_bfloat16_and_transposed_views(tmp_path: Path) -> None:
    weights = load_gguf(save(tmp_path / "some.gguf", mlp(0)))
    for array, shape in ((weights.gate, (K, N)), (weights.up, (K, N)), (weights.down, (N, K_OUT))):
        assert type(array) is np.ndarray
        assert array.dtype == ml_dtypes.bfloat16
        assert array.shape == shape
        assert array.T.flags.c_contiguous
        assert not array.flags.owndata


def test_loads_the_asked_layer(tmp_path: Path) -> None:
    path = save(tmp_path / "some.gguf", mlp(0) | mlp(1) | mlp(11))
    expected = round_to_bf16(mlp(1)["blk.1.ffn_gate.weight"])
    np.testing.assert_array_equal(load_gguf(str(path), 1).gate.T, expected)


def test_source_names_the_file_and_the_layer(tmp_path: Path) -> None:
    assert load_gguf(save(tmp_path / "some.gguf", mlp(3)), 3).source == "some.gguf layer 3"


def test_layer_count(tmp_path: Path) -> None:
    assert layer_count(save(tmp_path / "some.GGUF", mlp(0) | mlp(1))) == 2


def test_iter_layers_gives_each_layer_in_order(tmp_path: Path) -> None:
    path = save(tmp_path / "some.gguf", mlp(1) | mlp(0))
    first, second = iter_layers(path)
    np.testing.assert_array_equal(first.gate, load_gguf(path, 0).gate)
    np.testing.assert_array_equal(second.gate, load_gguf(path, 1).gate)


def test_iter_layers_opens_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "some.gguf", mlp(0) | mlp(1) | mlp(2))
    opened: list[Path] = []

    class CountingReader(gguf.GGUFReader):
        def __init__(self, path: Path) -> None:
            opened.append(path)
            super().__init__(path)

    monkeypatch.setattr(gguf, "GGUFReader", CountingReader)
    assert len(list(iter_layers(path))) == 3
    assert opened == [path]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"path: .*none\.gguf does not exist"):
        load_gguf(tmp_path / "none.gguf")


def test_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a file; it should be a \.gguf file"):
        load_gguf(tmp_path)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a GGUF file at all"])
def test_other_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"some\.gguf is not a GGUF file, or it is damaged"):
        load_gguf(path)


@pytest.mark.parametrize("part", [0.02, 0.3, 0.9])
def test_truncated_file_is_refused(tmp_path: Path, part: float) -> None:
    content = save(tmp_path / "whole.gguf", mlp(0)).read_bytes()
    path = tmp_path / "some.gguf"
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(ValueError, match=r"some\.gguf is not a GGUF file, or it is damaged"):
        load_gguf(path)


def test_big_endian_file_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "some.gguf", mlp(0), order=gguf.GGUFEndian.BIG)
    with pytest.raises(ValueError, match=r"other byte order.*gguf-convert-endian"):
        load_gguf(path)


def test_layer_out_of_range_says_which_there_are(tmp_path: Path) -> None:
    path = save(tmp_path / "some.gguf", mlp(0) | mlp(1) | mlp(2))
    with pytest.raises(ValueError, match=r"no layer 3 .* 3 layers: 0 to 2"):
        load_gguf(path, 3)


def test_file_without_an_mlp_lists_its_tensors(tmp_path: Path) -> None:
    tensors: dict[str, Array] = {"blk.0.ffn_gate_exps.weight": np.zeros((2, 4, 32), np.float32)}
    path = save(tmp_path / "some.gguf", tensors)
    with pytest.raises(
        ValueError, match=r"no layer with a gated MLP.* holds blk\.0\.ffn_gate_exps"
    ):
        load_gguf(path)


def test_incomplete_layer_names_what_it_lacks(tmp_path: Path) -> None:
    tensors = mlp(0)
    del tensors["blk.0.ffn_down.weight"]
    path = save(tmp_path / "some.gguf", tensors)
    with pytest.raises(ValueError, match=r"lacks blk\.0\.ffn_down\.weight;"):
        load_gguf(path)


def test_type_that_cannot_be_dequantised_is_named(tmp_path: Path) -> None:
    tensors = mlp(0)
    tensors["blk.0.ffn_up.weight"] = np.zeros((N, K), np.int8)
    path = save(tmp_path / "some.gguf", tensors)
    with pytest.raises(ValueError, match=r"blk\.0\.ffn_up\.weight in .* GGUF type I8"):
        load_gguf(path)


def test_type_that_the_package_does_not_know_is_named(tmp_path: Path) -> None:
    path = save(tmp_path / "some.gguf", mlp(0))
    content = bytearray(path.read_bytes())
    name = b"blk.0.ffn_up.weight"
    # Behind the name: the number of dimensions, 4 bytes, two dimensions of 8, and the type.
    kind = content.index(name) + len(name) + 4 + 2 * 8
    assert content[kind : kind + 4] == Type.F32.to_bytes(4, "little")
    content[kind : kind + 4] = (999).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"GGUF type .* does not know.*999.* or upgrade gguf"):
        load_gguf(path)


def test_shapes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    tensors = mlp(0)
    tensors["blk.0.ffn_up.weight"] = np.zeros((N, K + 1), np.float32)
    path = save(tmp_path / "some.gguf", tensors)
    with pytest.raises(ValueError, match=r"shape \(32, 64\), up \(33, 64\) and down \(64, 96\)"):
        load_gguf(path)


@pytest.mark.parametrize("layer", [1.0, "1", None, True])
def test_layer_of_another_type_is_refused(tmp_path: Path, layer: Any) -> None:
    with pytest.raises(TypeError, match="layer must be an int, got"):
        load_gguf(tmp_path / "none.gguf", layer)


def test_negative_layer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="layer must be 0 or more, got -1"):
        load_gguf(tmp_path / "none.gguf", -1)


def test_without_the_extra_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "some.gguf", mlp(0))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"gguf: pip install 'cuswiglu\[models\]'"):
        load_gguf(path)
