"""A stand-in for torch on the CPU: BF16 tensors over NumPy, as far as eager's gate and up need."""

from __future__ import annotations

import sys
import types

import ml_dtypes
import numpy as np


class Tensor:
    """A tensor; without gradients, and never on a GPU."""

    is_cuda = False

    def __init__(self, array):
        self._array = array

    def view(self, dtype):
        return Tensor(self._array.view(dtype))

    def numpy(self):
        return self._array

    def detach(self):
        return self

    def __mul__(self, other):
        return _rounded(self._floats() * other._floats())

    def _floats(self):
        assert self._array.dtype == ml_dtypes.bfloat16
        return self._array.astype(np.float32)


def _rounded(values):
    return Tensor(values.astype(ml_dtypes.bfloat16))


def linear(x, weight):
    return _rounded(x._floats() @ weight._floats().T)


def silu(x):
    values = x._floats()
    return _rounded(values / (1 + np.exp(-values)))


def install(monkeypatch):
    """Put it in torch's place; it sees no GPU."""
    functional = types.SimpleNamespace(linear=linear, silu=silu)
    torch = types.ModuleType("torch")
    torch.bfloat16, torch.int16 = ml_dtypes.bfloat16, np.int16
    torch.from_numpy, torch.no_grad = Tensor, lambda: lambda call: call
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    torch.nn = types.ModuleType("torch.nn")
    torch.nn.functional = functional
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.nn", torch.nn)
