"""Fused SwiGLU and gated-MLP kernels for Hopper GPUs, without PyTorch.

    swiglu(x, w_gate, w_up)       = silu(x @ w_gate) * (x @ w_up)
    mlp(x, w_gate, w_up, w_down)  = swiglu(x, w_gate, w_up) @ w_down

Both take other activations, and biases. `cuswiglu.jax` has the same functions for JAX arrays.
Importing the package touches neither CuPy nor CUDA: modules load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.cuda_graph import CapturedMLP as CapturedMLP
    from .api.explain import Explanation as Explanation
    from .api.explain import explain as explain
    from .api.functional import mlp as mlp
    from .api.functional import swiglu as swiglu
    from .api.gated_mlp import GatedMLP as GatedMLP
    from .api.pack import pack as pack
    from .arrays.convert import asarray as asarray
    from .common.device import DeviceInfo as DeviceInfo
    from .kernels.manifest import KernelsUnavailableError as KernelsUnavailableError
    from .kernels.manifest import variants as variants
    from .kernels.variant import Variant as Variant
    from .problem.activations import ClampedSwiGLU as ClampedSwiGLU
    from .problem.weights import PackedWeights as PackedWeights

__version__ = "0.2.0.dev0"

_MODULES = {
    "CapturedMLP": "api.cuda_graph",
    "ClampedSwiGLU": "problem.activations",
    "DeviceInfo": "common.device",
    "Explanation": "api.explain",
    "GatedMLP": "api.gated_mlp",
    "KernelsUnavailableError": "kernels.manifest",
    "PackedWeights": "problem.weights",
    "Variant": "kernels.variant",
    "asarray": "arrays.convert",
    "explain": "api.explain",
    "mlp": "api.functional",
    "pack": "api.pack",
    "swiglu": "api.functional",
    "variants": "kernels.manifest",
}

__all__ = ["__version__", *_MODULES]


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
