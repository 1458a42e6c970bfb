"""Who is checked: everything of ours that runs here, torch eager, and the operations one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from .. import arrays
from ..api import functional
from ..api.pack import pack
from ..arrays import cupy_module
from ..bench.contenders import _torch
from ..bench.inputs import poison
from ..kernels import manifest
from ..selection import select

EAGER = "torch-eager"
#: Operation by operation, each result rounded to BF16, as eager does; in CuPy or NumPy.
UNFUSED = "unfused"


@dataclass(frozen=True)
class Contender:
    """`compute(x, gate, up)` gives (M, N), BF16, of arrays of one library; `ours` is ours."""

    name: str
    compute: Callable[[Any, Any, Any], Any]
    ours: bool = True


@dataclass(frozen=True)
class Found:
    """Contenders that are here, and why others are missing."""

    contenders: list[Contender] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def find(backend: str, reason: str = "") -> Found:
    """Everybody who can take part.

    Parameters
    ----------
    backend : str
        "sm90" or "cublas" for arrays on the GPU, "numpy" for arrays on the CPU.
    reason : str
        Why it is not sm90.
    """
    found, on_gpu = Found(), backend != select.REFERENCE
    if backend == "sm90":
        found.contenders.extend(
            Contender(kernel.name, _ours(kernel.name, packed=kernel.family == "interleave"))
            for kernel in manifest.variants()
            if kernel.gated
        )
    else:
        found.missing["instances"] = reason
    ours = {"auto": "auto", "portable": select.PORTABLE} if on_gpu else {"numpy": select.REFERENCE}
    found.contenders.extend(Contender(name, _ours(asked)) for name, asked in ours.items())
    missing = _torch.why_missing(on_gpu=on_gpu)
    if missing:
        found.missing[EAGER] = missing
    else:
        found.contenders.append(Contender(EAGER, _eager_gpu if on_gpu else _eager_cpu, ours=False))
    found.contenders.append(Contender(UNFUSED, _unfused, ours=False))
    return found


def _ours(name: str, *, packed: bool = False) -> Callable[[Any, Any, Any], Any]:
    def compute(x: Any, gate: Any, up: Any) -> Any:
        out = arrays.empty((x.shape[0], gate.shape[1]), arrays.view("x", x).device)
        poison(out)
        weights = (pack(gate, up),) if packed else (gate, up)
        return functional.swiglu(x, *weights, out=out, variant=name)

    return compute


def _eager_gpu(x: Any, gate: Any, up: Any) -> Any:
    import torch

    cupy = cupy_module()
    cupy.cuda.get_current_stream().synchronize()
    with torch.no_grad():
        result = _torch.swiglu(*_torch.tensors((x, gate.T, up.T)))
    torch.cuda.synchronize()
    return cupy.from_dlpack(result)


def _eager_cpu(x: Any, gate: Any, up: Any) -> Any:
    import torch

    def tensor(array: Any) -> Any:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)

    with torch.no_grad():
        result = _torch.swiglu(*(tensor(array) for array in (x, gate.T, up.T)))
    return result.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _unfused(x: Any, gate: Any, up: Any) -> Any:
    if isinstance(x, np.ndarray):
        xp: Any = np
        products = [
            (x.astype(np.float32) @ weight.astype(np.float32)).astype(ml_dtypes.bfloat16)
            for weight in (gate, up)
        ]
    else:
        xp, products = cupy_module(), [x @ gate, x @ up]
    gated, plain = (product.astype(xp.float32) for product in products)
    silu = (gated / (1 + xp.exp(-gated))).astype(ml_dtypes.bfloat16)
    return (silu.astype(xp.float32) * plain).astype(ml_dtypes.bfloat16)
