"""Tests of what notebook 3 is made of: a Llama, its tokenizer, and text from SmolLM2-135M."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="the tokenizer needs it: pip install tokenizers")

from notebooks import smollm2

Array = npt.NDArray[Any]

LETTERS_AND_SPACE = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[^\sA-Za-z]+|\s+(?!\S)|\s+")
MISSING_CONTROLS = "\x04\x06\x13\x14\x16\x1d"  # no tokens of this vocabulary
ANY_TEXT = st.text(
    st.characters(codec="utf-8", max_codepoint=0x3FFFF, exclude_characters=MISSING_CONTROLS)
)


@pytest.fixture(scope="module")
def model(smollm2_file: Path) -> Any:
    """SmolLM2's FP32 weights, and its tokenizer."""
    return smollm2.read(smollm2_file)


@pytest.fixture(scope="module")
def tokenizer(model: Any) -> Any:
    return model[1]


@pytest.fixture(scope="module")
def merges(smollm2_file: Path) -> dict[tuple[str, str], int]:
    """The rank of each pair that may be merged."""
    lines = gguf.GGUFReader(smollm2_file).get_field("tokenizer.ggml.merges").contents()
    return {tuple(line.split(" ")): rank for rank, line in enumerate(lines)}


def merged(word: str, merges: dict[tuple[str, str], int]) -> list[str]:
    """Byte-pair encoding by its definition, of ASCII: spaces and newlines have other signs."""
    parts = list(word.replace(" ", "Ġ").replace("\n", "Ċ"))
    while pairs := [pair for pair in pairwise(parts) if pair in merges]:
        best = min(pairs, key=merges.__getitem__)
        at = list(pairwise(parts)).index(best)
        parts[at : at + 2] = ["".join(best)]
    return parts


@pytest.mark.parametrize(
    "text",
    [
        "The capital of France is Paris.",
        "In 2024, 3.5 million people can't   wait\n\nfor it.",
        "def add(a, b):\n    return a + b  # they're 10 and 200\n",
        "  two spaces ahead, three behind   ",
    ],
)
def test_tokens_are_those_of_merging_pairs_by_rank(
    tokenizer: Any, merges: dict[tuple[str, str], int], text: str
) -> None:
    pieces = [piece for piece in re.split(r"(\d)", text) if piece]
    words = [word for piece in pieces for word in LETTERS_AND_SPACE.findall(piece)]
    assert "".join(words) == text
    expected = [part for word in words for part in merged(word, merges)]
    assert tokenizer.encode(text).tokens == expected


def test_known_tokens_of_a_sentence(tokenizer: Any) -> None:
    assert tokenizer.encode("The capital of France is Paris.").ids == [
        504, 3575, 282, 4649, 314, 7042, 30,
    ]  # fmt: skip


def test_every_digit_is_a_token(tokenizer: Any) -> None:
    assert tokenizer.encode("x2024").tokens == ["x", "2", "0", "2", "4"]


def test_control_tokens_are_not_cut(tokenizer: Any) -> None:
    assert tokenizer.encode("<|im_start|>user\n<|im_end|>").ids[::3] == [1, 2]


@settings(max_examples=200, deadline=None)
@given(text=ANY_TEXT)
def test_text_comes_back_from_its_tokens(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def random_weights(vocabulary: int = 31, k: int = 24, n: int = 40, d: int = 6) -> smollm2.Weights:
    """A Llama of three layers, four heads and two heads of keys and values."""
    rng = np.random.default_rng(7)

    def some(*shape: int) -> Array:
        return rng.normal(0, k**-0.5, shape).astype(np.float32)

    def scales() -> Array:
        return rng.uniform(0.5, 2, k).astype(np.float32)

    config = smollm2.Config(heads=4, kv_heads=2, rope_base=100.0, epsilon=1e-5)
    layers = [
        smollm2.LayerWeights(
            attn_norm=scales(),
            attn_q=2 * some(4 * d, k),
            attn_k=2 * some(2 * d, k),
            attn_v=some(2 * d, k),
            attn_output=some(k, 4 * d),
            ffn_norm=scales(),
            ffn_gate=some(n, k),
            ffn_up=some(n, k),
            ffn_down=some(k, n),
        )
        for _ in range(3)
    ]
    return smollm2.Weights(config, some(vocabulary, k), layers, scales())


def reference_model(weights: smollm2.Weights) -> smollm2.Llama:
    return smollm2.Llama(weights, map(smollm2.fp32_mlp, weights.layers))


def fp64_rotated(x: Array, position: int, base: float) -> Array:
    """Pairs of x (heads, D) as complex numbers, turned by position / base^(2 i / D)."""
    pairs = x[:, 0::2] + 1j * x[:, 1::2]
    pairs = pairs * np.exp(1j * position * base ** (-np.arange(0, x.shape[1], 2) / x.shape[1]))
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


def fp64_attention(q: Array, k: Array, v: Array) -> Array:
    """One token and one head at a time; q are the last of the tokens of k and v."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    (tokens, heads, size), (length, kv_heads, _) = q.shape, k.shape
    out = np.zeros((tokens, heads, size))
    for t in range(tokens):
        seen = length - tokens + t + 1
        for head in range(heads):
            of_group = head // (heads // kv_heads)
            weight = np.exp(k[:seen, of_group] @ q[t, head] / size**0.5)
            out[t, head] = weight @ v[:seen, of_group] / weight.sum()
    return out.reshape(tokens, -1)


def fp64_logits(weights: smollm2.Weights, tokens: list[int]) -> Array:
    """A Llama's definition, in FP64, without a cache."""
    config = weights.config

    def norm(x: Array, scale: Array) -> Array:
        return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.epsilon) * scale

    def heads(x: Array, matrix: Array, count: int) -> Array:
        return (x @ matrix.astype(np.float64).T).reshape(len(tokens), count, -1)

    x = weights.embedding[tokens].astype(np.float64)
    for layer in weights.layers:
        h = norm(x, layer.attn_norm)
        q = heads(h, layer.attn_q, config.heads)
        k = heads(h, layer.attn_k, config.kv_heads)
        q, k = (
            np.stack([fp64_rotated(row, t, config.rope_base) for t, row in enumerate(array)])
            for array in (q, k)
        )
        v = heads(h, layer.attn_v, config.kv_heads)
        x = x + fp64_attention(q, k, v) @ layer.attn_output.T
        h = norm(x, layer.ffn_norm)
        gate, up = h @ layer.ffn_gate.T, h @ layer.ffn_up.T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ layer.ffn_down.T
    return weights.embedding @ norm(x[-1], weights.norm)


def test_rotation_turns_each_pair_by_its_position() -> None:
    x = np.random.default_rng(0).standard_normal((5, 3, 8)).astype(np.float32)
    found = smollm2.rotate(x, *smollm2.rotation(range(40, 45), 8, 100_000.0))
    expected = [fp64_rotated(row, 40 + t, 100_000.0) for t, row in enumerate(x)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(("tokens", "length"), [(6, 6), (1, 1), (1, 9), (3, 9)])
def test_attention_sees_earlier_tokens_and_shares_keys_in_groups(tokens: int, length: int) -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((tokens, 6, 8)).astype(np.float32)
    k, v = rng.standard_normal((2, length, 2, 8)).astype(np.float32)
    found = smollm2.attention(q, k, v, np)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, fp64_attention(q, k, v), atol=1e-6)


def test_logits_are_those_of_the_definition_in_fp64() -> None:
    weights, tokens = random_weights(), [3, 1, 4, 1, 5, 9, 2, 6]
    model = reference_model(weights)
    found = model(tokens, model.cache(len(tokens)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, fp64_logits(weights, tokens), atol=1e-4)


def test_decoding_with_a_cache_equals_computing_everything_again() -> None:
    weights, tokens = random_weights(), [3, 1, 4, 1, 5, 9, 2, 6]
    model = reference_model(weights)
    cache = model.cache(20)
    cache.keys[...] = cache.values[...] = np.nan  # what is not filled yet must not be read
    for first, last in ((0, 3), (3, 4), (4, 7), (7, 8)):
        found = model(tokens[first:last], cache)
        np.testing.assert_allclose(found, fp64_logits(weights, tokens[:last]), atol=1e-4)


def test_generates_the_likeliest_token_each_time() -> None:
    weights, prompt = random_weights(), [3, 1, 4]
    made = smollm2.generate(reference_model(weights), prompt, 6)
    expected = list(prompt)
    for logits in made.logits:
        exact = fp64_logits(weights, expected)
        np.testing.assert_allclose(logits, exact, atol=1e-4)
        expected.append(int(exact.argmax()))
    assert prompt + made.tokens == expected
    assert len(made.tokens) == 6


def test_stops_behind_the_stop_token() -> None:
    model, prompt = reference_model(random_weights()), [3, 1, 4]
    tokens = smollm2.generate(model, prompt, 6).tokens
    stop = tokens[2]
    expected = tokens[: tokens.index(stop) + 1]
    assert smollm2.generate(model, prompt, 6, stop).tokens == expected


def test_margin_is_from_the_highest_to_the_second() -> None:
    assert smollm2.margin(np.float32([1, 5, -7, 3])) == 2


def test_cuswiglu_makes_the_text_of_the_fp32_reference(model: Any) -> None:
    weights, tokenizer = model
    prompt = tokenizer.encode(smollm2.chat("What is the chemical formula of water?")).ids
    reference = smollm2.generate(reference_model(weights), prompt, 10)
    fused_model = smollm2.Llama(weights, map(smollm2.FusedMLP, weights.layers))
    fused = smollm2.generate(fused_model, prompt, 10)
    assert tokenizer.decode(reference.tokens) == "The chemical formula of water is H2O."
    assert fused.tokens == reference.tokens
    assert any((a != b).any() for a, b in zip(fused.logits, reference.logits, strict=True))
