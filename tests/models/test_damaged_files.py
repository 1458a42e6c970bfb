"""Damaged and lying files: they load right, or raise an error that names them; nothing else.

No hang, no crash, no memory that the file does not have.
"""

from __future__ import annotations

import json
import struct
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuswiglu.models import MLPWeights, _weights, load_gguf, load_safetensors
from tests.helpers import gguf_files, safetensors_files
from tests.helpers.damage import JSON, bounded, damaged, damages, places, with_other

FEW = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
#: What `load_gguf` and `load_safetensors` are said to raise for a file.
DOCUMENTED = (ValueError, FileNotFoundError)


def outcome(load: Any, path: Path, name: str | None = None) -> MLPWeights | None:
    """What was loaded, or None after a documented error that names the file."""
    weights, said = None, None
    with warnings.catch_warnings(), bounded():
        warnings.simplefilter("ignore")
        try:
            weights = load(path)
        except DOCUMENTED as error:
            said = str(error)
    assert said is None or (name or path.name) in said
    return weights


# safetensors


@pytest.fixture(scope="module")
def safetensors(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "model.safetensors"
    return safetensors_files.save(path, safetensors_files.mlp(0)).read_bytes()


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + struct.unpack_from("<Q", data)[0]
    return json.loads(data[8:end]), data[end:]


def joined(header: bytes, tensors: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + tensors


@FEW
@given(st.lists(damages(420), min_size=1, max_size=3))
def test_a_damaged_safetensors_file_is_read_or_refused_by_name(tmp_path, safetensors, made) -> None:
    path = tmp_path / "some.safetensors"
    path.write_bytes(damaged(safetensors, made))
    outcome(load_safetensors, path)


@FEW
@given(st.data())
def test_a_safetensors_header_that_lies_is_read_or_refused_by_name(
    tmp_path, safetensors, data
) -> None:
    header, tensors = split(safetensors)
    place = data.draw(st.sampled_from(list(places(header))))
    value = data.draw(JSON)
    path = tmp_path / "some.safetensors"
    text = json.dumps(with_other(header, place, value))
    path.write_bytes(joined(text.encode(), tensors))
    outcome(load_safetensors, path)


@pytest.mark.parametrize(
    "header",
    [b"[" * 200_000, b'{"a":' * 200_000, b'{"a":1' + b"0" * 5000 + b"}", b"{" + b" " * 10**6],
)
def test_a_safetensors_header_that_is_deep_or_long_is_refused(tmp_path, header) -> None:
    path = tmp_path / "some.safetensors"
    path.write_bytes(joined(header, b""))
    assert outcome(load_safetensors, path) is None


@pytest.mark.parametrize("length", [2**27, 2**40, 2**63, 2**64 - 1])
def test_a_safetensors_header_that_is_longer_than_the_file_is_refused(
    tmp_path, safetensors, length
) -> None:
    path = tmp_path / "some.safetensors"
    path.write_bytes(struct.pack("<Q", length) + safetensors[8:])
    assert outcome(load_safetensors, path) is None


def test_a_layer_number_of_thousands_of_digits_is_no_layer(tmp_path) -> None:
    name = f"model.layers.{'1' * 5000}.mlp.gate_proj.weight"
    path = safetensors_files.save(
        tmp_path / "some.safetensors", {name: np.zeros((2, 2), np.float32)}
    )
    assert outcome(load_safetensors, path) is None


# Index and configuration


@FEW
@given(st.data())
def test_an_index_that_lies_gives_the_right_layer_or_is_refused(tmp_path, data) -> None:
    index = safetensors_files.save_sharded(tmp_path)
    content = json.loads(index.read_text())
    place = data.draw(st.sampled_from(list(places(content))))
    index.write_text(json.dumps(with_other(content, place, data.draw(JSON))))
    found = outcome(load_safetensors, index, name=str(tmp_path))
    if found is not None:
        safetensors_files.assert_is_layer(found, 0)


@FEW
@given(st.data())
def test_a_configuration_that_lies_changes_no_weight_or_is_refused(tmp_path, data) -> None:
    path = safetensors_files.save(tmp_path / "some.safetensors", safetensors_files.mlp(0))
    content = {**safetensors_files.LLAMA, "text_config": {"hidden_act": "silu"}}
    place = data.draw(st.sampled_from(list(places(content))))
    (tmp_path / "config.json").write_text(json.dumps(with_other(content, place, data.draw(JSON))))
    found = outcome(load_safetensors, path, name=str(tmp_path))
    if found is not None:
        safetensors_files.assert_is_layer(found, 0)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "1" * 5000, "\ufeff{}", "NaN"])
def test_json_that_is_deep_or_odd_is_refused(tmp_path, name, text) -> None:
    safetensors_files.save_sharded(tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert outcome(load_safetensors, tmp_path, name=name) is None


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_json_that_is_too_large_is_refused(tmp_path, monkeypatch, name) -> None:
    safetensors_files.save_sharded(tmp_path)
    monkeypatch.setattr(_weights, "MAX_JSON_BYTES", 10_000)
    assert outcome(load_safetensors, tmp_path) is not None
    with (tmp_path / name).open("a") as file:
        file.write(" " * 10_000)
    with pytest.raises(ValueError, match=rf"{name} is not valid JSON \(it is larger than 10000"):
        load_safetensors(tmp_path)


# GGUF


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "model.gguf"
    return gguf_files.save(path, gguf_files.mlp(0)).read_bytes()


@FEW
@given(st.lists(damages(256), min_size=1, max_size=3))
def test_a_damaged_gguf_file_is_read_or_refused_by_name(tmp_path, gguf, made) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(damaged(gguf, made))
    outcome(load_gguf, path)


GATE, DOWN = b"blk.0.ffn_gate.weight", b"blk.0.ffn_down.weight"


@pytest.mark.parametrize(
    ("behind", "place", "form", "number", "words"),
    [
        (b"", 8, "Q", 2**40, "the list of tensors .* too many"),
        (b"", 16, "Q", 2**62, "the metadata .* too many"),
        (b"", 24, "Q", 2**63, "a key at byte 32 has 9223372036854775808 bytes"),
        (
            b"general.architecture",
            4,
            "Q",
            2**64 - 1,
            "value of general.architecture .* the file has",
        ),
        (b"general.architecture", 0, "I", 99, "value of general.architecture .* type 99"),
        (GATE, 0, "I", 2**31, "has 2147483648 dimensions, at most 4"),
        (GATE, 4, "Q", 2**63, "ffn_gate.weight ends at byte|ffn_up.weight is said to begin"),
        (GATE, 20, "I", 1, "ffn_up.weight is said to begin at 8192, it can only at 4096"),
        (GATE, 24, "Q", 8192, "ffn_gate.weight is said to begin at 8192, it can only at 0"),
        (GATE, 24, "Q", 2**64 - 32, "is said to begin at 18446744073709551584"),
    ],
)
def test_a_gguf_header_that_lies_is_refused(
    tmp_path, gguf, behind, place, form, number, words
) -> None:
    at = (gguf.index(behind) + len(behind) if behind else 0) + place
    data = bytearray(gguf)
    struct.pack_into(f"<{form}", data, at, number)
    path = tmp_path / "some.gguf"
    path.write_bytes(data)
    with bounded(), pytest.raises(ValueError, match=rf"some\.gguf is not a GGUF .*(?:{words})"):
        load_gguf(path)


def test_a_gguf_file_that_ends_early_is_refused(tmp_path, gguf) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(gguf[:-4])
    with pytest.raises(ValueError, match=r"ffn_down\.weight ends at byte \d+, the file at \d+"):
        load_gguf(path)


def field(key: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


def with_field(gguf: bytes, added: bytes) -> bytes:
    """The file with one more field of metadata, and its tensors behind it."""
    infos = gguf.index(GATE) - 8  # behind the one field that there is
    end = gguf.index(DOWN) + len(DOWN) + 32  # two dimensions, a type and an offset
    tensors = -(-end // 32) * 32
    header = bytearray(gguf[:infos] + added + gguf[infos:end])
    struct.pack_into("<Q", header, 16, 2)
    return bytes(header) + bytes(-len(header) % 32) + gguf[tensors:]


def test_a_field_more_changes_nothing(tmp_path, gguf) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(
        with_field(gguf, field(b"tokens", ARRAY, struct.pack("<IQff", FLOAT, 2, 1, 2)))
    )
    found = outcome(load_gguf, path)
    gate = gguf_files.mlp(0)[GATE.decode()].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found.gate.T, gate)


STRING, ARRAY, FLOAT = 8, 9, 6


@pytest.mark.parametrize(
    ("value", "words"),
    [
        # As many elements as can be said: reading them one by one would never end.
        (struct.pack("<IQ", FLOAT, 2**63), "tokens .* too many"),
        (struct.pack("<IQ", FLOAT, 2**21), "tokens .* bytes, the file has"),
        (struct.pack("<IQ", STRING, 2**21), "tokens .* bytes, the file has"),
        (struct.pack("<IQ", STRING, 2**63), "tokens .* too many"),
        (struct.pack("<IQ", 77, 3), "tokens .* type 77"),
        (struct.pack("<IQ", ARRAY, 1) * 5000, "tokens .* type 9"),
    ],
    ids=["numbers", "numbers beyond", "strings beyond", "strings", "unknown", "nested"],
)
def test_an_array_of_metadata_that_lies_is_refused(tmp_path, gguf, value, words) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(with_field(gguf, field(b"tokens", ARRAY, value)))
    with bounded(), pytest.raises(ValueError, match=rf"some\.gguf is not a GGUF .*(?:{words})"):
        load_gguf(path)


@pytest.mark.parametrize(
    ("key", "kind", "value", "words"),
    [
        (b"general.alignment", 4, struct.pack("<I", 24), "general.alignment is 24"),
        (b"general.alignment", 4, struct.pack("<I", 0), "general.alignment is 0"),
        (b"\xff\xfe", 4, struct.pack("<I", 0), "a key at byte .* is not UTF-8"),
        (b"llama.hidden_activation", STRING, struct.pack("<Q", 1) + b"\xff", "not UTF-8"),
    ],
)
def test_metadata_that_makes_no_sense_is_refused(tmp_path, gguf, key, kind, value, words) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(with_field(gguf, field(key, kind, value)))
    with bounded(), pytest.raises(ValueError, match=rf"some\.gguf is .*{words}"):
        load_gguf(path)
