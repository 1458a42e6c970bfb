"""Hidden and intermediate sizes (K, N) of known models, from their published configurations."""

from __future__ import annotations

SHAPES: dict[str, tuple[int, int]] = {
    "smollm2-135m": (576, 1536),
    "qwen2.5-0.5b": (896, 4864),
    "qwen2.5-1.5b": (1536, 8960),
    "qwen2.5-3b": (2048, 11008),
    "qwen2.5-7b": (3584, 18944),
    "qwen2.5-14b": (5120, 13824),
    "qwen2.5-32b": (5120, 27648),
    "qwen2.5-72b": (8192, 29568),
    "llama-3.1-8b": (4096, 14336),
    "llama-3.1-70b": (8192, 28672),
    "mistral-7b": (4096, 14336),
}
