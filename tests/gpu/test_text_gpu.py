"""Text of a real model on a GPU: that of the CPU, where SmolLM2-135M is installed."""

from __future__ import annotations

import numpy as np
import pytest

from cuswiglu.models._smollm2 import smollm2_path

pytest.importorskip("tokenizers", reason="the tokenizer needs it: pip install tokenizers")
pytest.importorskip("gguf", reason="the weights are read by it: pip install gguf")

from notebooks import smollm2

QUESTION = "List the months of the year."
COUNT = 40


@pytest.fixture
def path():
    try:
        return smollm2_path()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def test_the_gpu_makes_the_text_of_the_cpu_and_of_the_fp32_reference(cupy, path):
    weights, tokenizer = smollm2.read(path)
    prompt = tokenizer.encode(smollm2.chat(QUESTION)).ids
    stop = tokenizer.token_to_id("<|im_end|>")
    models = {"reference": smollm2.Llama(weights, map(smollm2.fp32_mlp, weights.layers))}
    for xp in (np, cupy):
        mlps = [smollm2.FusedMLP(layer, xp) for layer in weights.layers]
        models[xp.__name__] = smollm2.Llama(weights, mlps, xp)
    made = {
        name: smollm2.generate(model, prompt, COUNT, stop).tokens for name, model in models.items()
    }
    assert made["cupy"] == made["numpy"] == made["reference"]
    assert tokenizer.decode(made["cupy"]).endswith("October, November, December.")
