"""Names of the tensors of gated MLPs, model by model, and their activations.

To read another model, add its tensors' names to `SAFETENSORS` or `GGUF`, and its architecture to
`ACTIVATION_OF` if its checkpoints do not say themselves which activation they use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..problem.activations import NAMED

#: Activations that are computed.
SUPPORTED = tuple(NAMED)

#: Names in configurations -> the names used here; others stand for themselves.
ALIASES = {
    "swish": "silu",
    "linear": "identity",
    "gelu_python": "gelu",
    **dict.fromkeys(
        ["gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"],
        "gelu_tanh",
    ),
}

#: Keys of a configuration that name the activation; the first that is there counts.
ACTIVATION_KEYS = ("hidden_activation", "hidden_act", "mlp_hidden_act", "activation_function")

#: Sections of a multimodal model's configuration that hold the language model's.
LANGUAGE_SECTIONS = ("text_config", "llm_config", "language_config")

_SILU = """llama llama-embed mistral mistral3 ministral qwen2 qwen2vl qwen2_vl qwen3 qwen3vl phi3
    smollm3 olmo2 granite glm4 chatglm internlm2 exaone stablelm command-r cohere cohere2 seed_oss
    ernie4_5 deepseek2"""
_GELU_TANH = "gemma gemma2 gemma3 gemma3_text gemma4 gemma4_text"
_SPARSE = "gelu_tanh of the largest only"

#: Architecture (GGUF's general.architecture, a configuration's model_type) -> activation.
ACTIVATION_OF = {
    **dict.fromkeys(_SILU.split(), "silu"),
    **dict.fromkeys(_GELU_TANH.split(), "gelu_tanh"),
    "gemma3n": _SPARSE,
}

#: Configurations that name another activation than the model uses: (model_type, name) -> used.
MEANT = {
    ("gemma", "gelu"): "gelu_tanh",
    ("gemma3n_text", "gelu_pytorch_tanh"): _SPARSE,
}

#: End of a tensor's name that only such models have -> the architecture, for files without one.
TELLTALE = {"pre_feedforward_layernorm.weight": "gemma2"}

#: Before "layers" in the language model's names; decides where several models are in one file.
LANGUAGE_PREFIXES = (
    "",
    "model.",
    "language_model.",
    "language_model.model.",
    "model.language_model.",
    "thinker.model.",
)


@dataclass(frozen=True)
class Names:
    """Names of one layer's tensors: `module`, then `gate`, `up` or `down`, then ".weight".

    Biases, where a model has them, end in ".bias" instead.

    Attributes
    ----------
    models : str
        Models that use these names, for readers.
    module : str
        With ``{layer}`` for the layer's number. Any prefix may come before it.
    gate, up, down : str
        `gate` and `up` are the same where one tensor holds both: gate's rows, then up's.
    beside : tuple of str
        Endings of tensors that begin with `module` but are not part of the MLP.
    """

    models: str
    module: str
    gate: str
    up: str
    down: str
    beside: tuple[str, ...] = ()

    @property
    def fused(self) -> bool:
        """Whether one tensor holds gate and up."""
        return self.gate == self.up

    @property
    def gate_pattern(self) -> re.Pattern[str]:
        """Pattern of a gate's whole name; its groups are the prefix and the layer's number."""
        before, after = self.module.split("{layer}")
        return re.compile(
            rf"^((?:.*\.)?){re.escape(before)}([0-9]{{1,9}}){re.escape(after + self.gate)}\.weight$"
        )

    def weights(self, prefix: str, layer: int) -> list[str]:
        """Names of gate, up and down; of two tensors where one holds gate and up."""
        return self._tensors(prefix, layer, "weight")

    def biases(self, prefix: str, layer: int) -> list[str]:
        """Names of their biases, in the same order."""
        return self._tensors(prefix, layer, "bias")

    def _tensors(self, prefix: str, layer: int, ending: str) -> list[str]:
        module = prefix + self.module.format(layer=layer)
        parts = dict.fromkeys((self.gate, self.up, self.down))
        return [f"{module}{part}.{ending}" for part in parts]

    @property
    def example(self) -> str:
        """Name of layer 0's gate, for messages."""
        return f"{self.module.format(layer=0)}{self.gate}.weight"


#: Rows are tried in this order.
SAFETENSORS = (
    Names(
        "Llama, Mistral, Qwen 2 and 3, Gemma, SmolLM",
        "layers.{layer}.mlp.",
        "gate_proj",
        "up_proj",
        "down_proj",
    ),
    Names(
        "Phi-3, Phi-4, GLM-4",
        "layers.{layer}.mlp.",
        "gate_up_proj",
        "gate_up_proj",
        "down_proj",
    ),
    Names(
        "Llama and Mistral as their makers publish them",
        "layers.{layer}.feed_forward.",
        "w1",
        "w3",
        "w2",
    ),
)
_BESIDE = ("norm.weight", "norm.bias", "post_norm.weight", "post_norm.bias")
GGUF = (
    Names("Llama, Mistral, Qwen 2 and 3, Gemma", "blk.{layer}.ffn_", "gate", "up", "down", _BESIDE),
    Names("Phi-3, Phi-4, GLM-4", "blk.{layer}.ffn_", "up", "up", "down", _BESIDE),
)

#: Tensors of mixtures of experts: their router, the experts, and what all tokens share.
EXPERTS = re.compile(
    r"(?:layers|blk)\.([0-9]{1,9})\.(?:.*\bexperts\b|.*shared_expert|block_sparse_moe\.|mlp\.gate\.|"
    r"ffn_\w*_(?:exps|shexp|chexps)\b|ffn_gate_inp)"
)

#: Parts of an MLP that are not computed: pattern of a tensor's name -> description of the MLP.
OBSTACLES = (
    (EXPERTS, "is a mixture of experts, and cuswiglu computes one MLP for all tokens"),
    (re.compile(r"\.lora_"), "has an adapter that is not merged into its weights"),
    (
        re.compile(r"(?:qweight|qzeros|scale\w*|weight_packed|absmax|quant_\w+|SCB)$"),
        "is quantised in a way that cannot be undone here: get it in BF16, F16 or F32",
    ),
)
