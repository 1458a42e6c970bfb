"""Who is checked: everything of ours that runs here, torch eager, and the operations one by one."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from ..bench.contenders import Contender, Found, Runner, _own, _torch, absent, joined
from ..bench.contenders.inputs import Inputs
from ..selection import select

EAGER = _torch.EAGER
#: Operation by operation, each result rounded to BF16, as eager does; in CuPy or NumPy.
UNFUSED = "unfused"
#: Contenders that are not ours.
OTHERS = (EAGER, UNFUSED)


def find(backend: str, reason: str = "") -> Found:
    """Find everybody who can take part.

    Parameters
    ----------
    backend : str
        "sm90" or "cublas" for arrays on the GPU, "numpy" for arrays on the CPU.
    reason : str
        Why it is not sm90.
    """
    on_gpu = backend != select.REFERENCE
    kernels = _own.variants(decode=True) if backend == "sm90" else absent(["variants"], reason)
    ours = {"auto": "auto", "portable": select.PORTABLE} if on_gpu else {"numpy": select.REFERENCE}
    calls = [
        Contender(name, functools.partial(_own.swiglu, variant=variant))
        for name, variant in ours.items()
    ]
    missing = _torch.why_missing(on_gpu=on_gpu)
    eager = absent([EAGER], missing) if missing else Found([Contender(EAGER, _torch.eager)])
    return joined([kernels, Found(calls), eager, Found([Contender(UNFUSED, _unfused)])])


def _unfused(inputs: Inputs) -> Runner:
    def call(number: int) -> Any:
        xp, products = inputs.xp, [_product(inputs.x, weight) for weight in inputs.pairs[number]]
        gate, up = (product.astype(xp.float32) for product in products)
        silu = (gate / (1 + xp.exp(-gate))).astype(ml_dtypes.bfloat16)
        return (silu.astype(xp.float32) * up).astype(ml_dtypes.bfloat16)

    return Runner(lambda: call(0), call)


def _product(x: Any, weight: Any) -> Any:
    """Multiply, and round to BF16."""
    if not isinstance(x, np.ndarray):
        return x @ weight
    return (x.astype(np.float32) @ weight.astype(np.float32)).astype(ml_dtypes.bfloat16)
