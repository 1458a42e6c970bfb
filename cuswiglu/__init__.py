"""Fused SwiGLU and gated-MLP kernels for Hopper GPUs, without PyTorch.

    swiglu(x, w_gate, w_up)       = silu(x @ w_gate) * (x @ w_up)
    mlp(x, w_gate, w_up, w_down)  = swiglu(x, w_gate, w_up) @ w_down

Importing it touches neither CuPy nor CUDA.
"""

from .explanation import Explanation, explain
from .functional import mlp, swiglu
from .gated_mlp import GatedMLP
from .packed import PackedWeights, pack
from .variant import KernelsUnavailableError, Variant, variants

__version__ = "0.1.0"

__all__ = [
    "Explanation",
    "GatedMLP",
    "KernelsUnavailableError",
    "PackedWeights",
    "Variant",
    "__version__",
    "explain",
    "mlp",
    "pack",
    "swiglu",
    "variants",
]
