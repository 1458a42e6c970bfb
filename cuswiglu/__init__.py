"""Fused SwiGLU and gated-MLP kernels for Hopper GPUs, without PyTorch.

    swiglu(x, w_gate, w_up)       = silu(x @ w_gate) * (x @ w_up)
    mlp(x, w_gate, w_up, w_down)  = swiglu(x, w_gate, w_up) @ w_down

Importing it touches neither CuPy nor CUDA.
"""

from .functional import mlp, swiglu
from .gated_mlp import GatedMLP
from .variant import KernelsUnavailableError, Variant, variants

__version__ = "0.1.0"

__all__ = [
    "GatedMLP",
    "KernelsUnavailableError",
    "Variant",
    "__version__",
    "mlp",
    "swiglu",
    "variants",
]
