"""Fused SwiGLU and gated-MLP kernels for Hopper GPUs, without PyTorch.

    swiglu(x, w_gate, w_up)       = silu(x @ w_gate) * (x @ w_up)
    mlp(x, w_gate, w_up, w_down)  = swiglu(x, w_gate, w_up) @ w_down

with other activations of gate, and biases, where they are asked for. Importing it touches neither
CuPy nor CUDA, and loads its modules when they are first used; so `cuswiglu.jax`, the same for JAX
arrays.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .activations import ClampedSwiGLU
    from .captured import CapturedMLP
    from .explanation import Explanation, explain
    from .functional import mlp, swiglu
    from .gated_mlp import GatedMLP
    from .interop import asarray
    from .packed import PackedWeights, pack
    from .select import DeviceInfo
    from .variant import KernelsUnavailableError, Variant, variants

__version__ = "0.1.0"

__all__ = [
    "CapturedMLP",
    "ClampedSwiGLU",
    "DeviceInfo",
    "Explanation",
    "GatedMLP",
    "KernelsUnavailableError",
    "PackedWeights",
    "Variant",
    "__version__",
    "asarray",
    "explain",
    "mlp",
    "pack",
    "swiglu",
    "variants",
]

_MODULES = {
    "CapturedMLP": "captured",
    "ClampedSwiGLU": "activations",
    "DeviceInfo": "select",
    "Explanation": "explanation",
    "GatedMLP": "gated_mlp",
    "KernelsUnavailableError": "variant",
    "PackedWeights": "packed",
    "Variant": "variant",
    "asarray": "interop",
    "explain": "explanation",
    "mlp": "functional",
    "pack": "packed",
    "swiglu": "functional",
    "variants": "variant",
}


def __getattr__(name: str) -> Any:
    if name == "jax":
        return importlib.import_module(".jax", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{_MODULES[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name not in ("ml_dtypes", "numpy"):
            raise
        raise ImportError(
            f"cuswiglu needs {error.name}, which is not installed here: pip install {error.name}"
        ) from error
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
