"""SmolLM2-135M for notebook 3: a Llama in NumPy or CuPy, whose MLPs are given from outside.

The file is read with the package gguf, text is cut into tokens with the package tokenizers.
Everything but the MLPs is FP32. T is the number of tokens in a call, S of those up to its end,
K the hidden size, N the intermediate size, D the size of a head.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

import cuswiglu

Array = Any  # numpy.ndarray or cupy.ndarray
MLP = Callable[[Array], Array]  # (T, K) FP32 -> (T, K) FP32

_CONTROL = 3  # type of the tokens that text does not hold, such as <|im_start|>
_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


@dataclass(frozen=True)
class Config:
    """What a Llama's shapes do not say."""

    heads: int
    kv_heads: int
    rope_base: float
    epsilon: float


@dataclass(frozen=True)
class LayerWeights:
    """FP32; products are ``x @ weight.T``, as checkpoints hold them."""

    attn_norm: Array  # (K,)
    attn_q: Array  # (heads * D, K)
    attn_k: Array  # (kv_heads * D, K)
    attn_v: Array  # (kv_heads * D, K)
    attn_output: Array  # (K, heads * D)
    ffn_norm: Array  # (K,)
    ffn_gate: Array  # (N, K)
    ffn_up: Array  # (N, K)
    ffn_down: Array  # (K, N)


@dataclass(frozen=True)
class Weights:
    """A Llama whose embedding is also its last matrix."""

    config: Config
    embedding: Array  # (vocabulary, K)
    layers: list[LayerWeights]
    norm: Array  # (K,)


def read(path: Path) -> tuple[Weights, tokenizers.Tokenizer]:
    """Weights, dequantised to FP32 in host memory, and tokenizer of a GGUF file."""
    reader = gguf.GGUFReader(path)
    arrays = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in reader.tensors
    }

    def value(key: str) -> Any:
        return reader.get_field(key).contents()

    config = Config(
        heads=value("llama.attention.head_count"),
        kv_heads=value("llama.attention.head_count_kv"),
        rope_base=value("llama.rope.freq_base"),
        epsilon=value("llama.attention.layer_norm_rms_epsilon"),
    )
    layers = [
        LayerWeights(
            **{name: arrays[f"blk.{i}.{name}.weight"] for name in LayerWeights.__annotations__}
        )
        for i in range(value("llama.block_count"))
    ]
    weights = Weights(config, arrays["token_embd.weight"], layers, arrays["output_norm.weight"])
    tokenizer = make_tokenizer(
        value("tokenizer.ggml.tokens"),
        value("tokenizer.ggml.token_type"),
        value("tokenizer.ggml.merges"),
    )
    return weights, tokenizer


def make_tokenizer(
    tokens: Sequence[str], types: Sequence[int], merges: Sequence[str]
) -> tokenizers.Tokenizer:
    """Byte-level BPE as GGUF's pre-tokenizer "smollm" has it.

    Every digit stands alone; the rest is cut into words with the space before them, as in GPT-2,
    and the bytes of a word are merged, earlier merges first. Bytes that are no token are left out:
    SmolLM2 lacks six control characters and those above U+3FFFF.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    )
    return tokenizer


def chat(question: str) -> str:
    """The text of a conversation in which it is the model's turn to answer."""
    turns = (("system", _SYSTEM), ("user", question))
    said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return f"{said}<|im_start|>assistant\n"


def fp32_mlp(layer: LayerWeights) -> MLP:
    """The MLP written out in NumPy, nothing rounded to BF16: the reference."""

    def mlp(x: Array) -> Array:
        gate, up = x @ layer.ffn_gate.T, x @ layer.ffn_up.T
        return (gate / (1 + np.exp(-gate)) * up) @ layer.ffn_down.T

    return mlp


class FusedMLP:
    """The MLP through cuswiglu, in BF16, on arrays of the library xp."""

    def __init__(self, layer: LayerWeights, xp: Any = np) -> None:
        matrices = layer.ffn_gate, layer.ffn_up, layer.ffn_down
        gate, up, down = (xp.asarray(w.astype(ml_dtypes.bfloat16)).T for w in matrices)
        self.fused = cuswiglu.GatedMLP(gate, up, down)

    def __call__(self, x: Array) -> Array:
        return self.fused(x.astype(ml_dtypes.bfloat16)).astype(np.float32)


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """x over the root mean square of its rows, times weight."""
    return x * ((x * x).mean(axis=-1, keepdims=True) + epsilon) ** -0.5 * weight


def rotation(positions: range, size: int, base: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of the rotary embedding, (T, D / 2): later pairs turn more slowly."""
    speeds = base ** (-np.arange(0, size, 2) / size)
    angles = np.array(positions)[:, None] * speeds
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Turn neighbours in the last dimension of x (T, heads, D) by their position's angles.

    Hugging Face pairs element i with i + D / 2; GGUF files have the rows of Q and K reordered.
    """
    cos, sin = cos[:, None], sin[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = x.copy()
    turned[..., 0::2] = even * cos - odd * sin
    turned[..., 1::2] = even * sin + odd * cos
    return turned


def attention(q: Array, k: Array, v: Array, xp: Any) -> Array:
    """Causal grouped-query attention of the last T of S tokens.

    Parameters
    ----------
    q : (T, heads, D) array
    k, v : (S, kv_heads, D) array
        Each head of them serves heads / kv_heads heads of q that follow each other.
    xp : module

    Returns
    -------
    (T, heads * D) array
    """
    (tokens, heads, size), (length, kv_heads, _) = q.shape, k.shape
    # The heads of a group, one under the other, are the rows of one product.
    q = q.reshape(tokens, kv_heads, -1, size).transpose(1, 2, 0, 3).reshape(kv_heads, -1, size)
    scores = (q @ k.transpose(1, 2, 0)).reshape(kv_heads, -1, tokens, length) / math.sqrt(size)
    later = xp.arange(length) > xp.arange(length - tokens, length)[:, None]
    scores = xp.where(later, -math.inf, scores)
    weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    mixed = weights.reshape(kv_heads, -1, length) @ v.transpose(1, 0, 2)
    return mixed.reshape(heads, tokens, size).transpose(1, 0, 2).reshape(tokens, heads * size)


@dataclass
class KVCache:
    """Keys and values of the `filled` tokens so far: (layers, capacity, kv_heads, D)."""

    keys: Array
    values: Array
    filled: int = 0


class Llama:
    """A Llama on the arrays of one library.

    Parameters
    ----------
    weights : Weights
        Of the MLPs, nothing is used.
    mlps : iterable of callables
        One for each layer: (T, K) to (T, K), FP32 arrays of the library.
    xp : module
        numpy or cupy.
    """

    def __init__(self, weights: Weights, mlps: Iterable[MLP], xp: Any = np) -> None:
        self.config, self.xp, self.mlps = weights.config, xp, list(mlps)
        self.embedding = xp.asarray(weights.embedding)
        self.norm = xp.asarray(weights.norm)
        self.size = len(weights.layers[0].attn_q) // self.config.heads
        self.layers = [
            {
                name: xp.asarray(getattr(layer, name))
                for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm")
            }
            for layer in weights.layers
        ]

    def host(self, array: Array) -> np.ndarray:
        """The array in host memory."""
        return array if self.xp is np else self.xp.asnumpy(array)

    def cache(self, capacity: int) -> KVCache:
        """An empty cache for `capacity` tokens."""
        shape = len(self.layers), capacity, self.config.kv_heads, self.size
        return KVCache(*(self.xp.empty(shape, np.float32) for _ in "kv"))

    def __call__(self, tokens: Sequence[int], cache: KVCache) -> Array:
        """Logits (vocabulary,) after the last token; keys and values go to the cache."""
        xp, config, size = self.xp, self.config, self.size
        start, end = cache.filled, cache.filled + len(tokens)
        cos, sin = map(xp.asarray, rotation(range(start, end), size, config.rope_base))
        x = self.embedding[xp.asarray(tokens)]
        for layer, mlp, keys, values in zip(
            self.layers, self.mlps, cache.keys, cache.values, strict=True
        ):
            h = rms_norm(x, layer["attn_norm"], config.epsilon)
            q = (h @ layer["attn_q"].T).reshape(-1, config.heads, size)
            k = (h @ layer["attn_k"].T).reshape(-1, config.kv_heads, size)
            keys[start:end] = rotate(k, cos, sin)
            values[start:end] = (h @ layer["attn_v"].T).reshape(-1, config.kv_heads, size)
            h = attention(rotate(q, cos, sin), keys[:end], values[:end], xp)
            x = x + h @ layer["attn_output"].T
            x = x + mlp(rms_norm(x, layer["ffn_norm"], config.epsilon))
        cache.filled = end
        return self.embedding @ rms_norm(x[-1], self.norm, config.epsilon)


@dataclass
class Generation:
    """Greedy tokens, and what was known when each was chosen."""

    tokens: list[int] = field(default_factory=list)
    logits: list[Array] = field(default_factory=list)  # (vocabulary,) for each token
    prefill_seconds: float = 0.0  # until the first token is known
    decode_seconds: float = 0.0  # for those after it


def generate(
    model: Llama, prompt: Sequence[int], count: int, stop: int | None = None
) -> Generation:
    """At most `count` tokens, each the likeliest to come next; `stop` is the last if it comes."""
    cache = model.cache(len(prompt) + count)
    made = Generation()
    begin = time.perf_counter()
    given = prompt
    while len(made.tokens) < count:
        logits = model(given, cache)
        given = [int(logits.argmax())]  # waits for a GPU
        made.logits.append(logits)
        made.tokens += given
        if len(made.tokens) == 1:
            made.prefill_seconds = time.perf_counter() - begin
        if given == [stop]:
            break
    made.decode_seconds = time.perf_counter() - begin - made.prefill_seconds
    return made


def margin(logits: np.ndarray) -> float:
    """How far the highest logit is above the second."""
    second, first = np.partition(logits, -2)[-2:]
    return float(first - second)
