"""What cuBLAS is told on the portable path; it is not called here."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from cuswiglu.backends import cublas
from tests.helpers.device_arrays import cupy, on_device
from tests.helpers.host_arrays import BF16, FP16, draw

FAR = 2**33 + 8  # elements: cut to 32 bits, a stride of 8
WORKSPACE = SimpleNamespace(data=SimpleNamespace(ptr=512), nbytes=512)


def far_apart(rows, columns):
    """Rows at addresses that nothing looks at."""
    memory = cupy.cuda.UnownedMemory(1 << 30, rows * FAR * 2, None, 0)
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    return cupy.ndarray((rows, columns), BF16, pointer, strides=(FAR * 2, 2))


@pytest.fixture
def told(monkeypatch):
    """The arguments of the products, as C reads them."""
    found = []

    def product(*arguments):
        found.append([getattr(argument, "value", argument) for argument in arguments])
        assert all(isinstance(arguments[at], ctypes.c_int64) for at in (3, 4, 5, 9, 12, 16)), (
            "an argument of 64 bits is passed as such"
        )
        return 0

    def accept(*arguments):
        return 0

    library = SimpleNamespace(
        cublasSetStream_v2=accept,
        cublasSetWorkspace_v2=accept,
        cublasGetMathMode=accept,
        cublasSetMathMode=accept,
        cublasGemmEx_64=product,
    )
    device = SimpleNamespace(
        cuda=SimpleNamespace(
            get_cublas_handle=lambda: 1, get_current_stream=lambda: SimpleNamespace(ptr=0)
        ),
        float32=cupy.float32,
    )
    monkeypatch.setattr(cublas, "_library", lambda: library)
    monkeypatch.setattr(cublas, "cupy_module", lambda: device)
    return found


def test_strides_beyond_32_bits_are_told_whole(told):
    x, weight, out = far_apart(3, 64), far_apart(64, 40), far_apart(3, 40)
    cublas.matmul(x, weight, out, WORKSPACE)
    cublas.matmul(x, far_apart(40, 64).T, out, WORKSPACE)
    (along_n, along_k) = told
    for arguments in told:
        assert arguments[3:6] == [40, 3, 64]
        assert [arguments[at] for at in (9, 12, 16)] == [FAR] * 3
    assert (along_n[1], along_k[1]) == (0, 1)  # not transposed, transposed


@pytest.mark.parametrize(("dtype", "number"), [(BF16, 14), (FP16, 2)], ids=str)
@pytest.mark.parametrize(("result", "to"), [(None, None), (np.float32, 0)], ids=["own", "float32"])
def test_types_are_told(told, dtype, number, result, to):
    """CUDA_R_16BF, CUDA_R_16F and CUDA_R_32F."""
    x, weight = (on_device(array) for array in draw(3, 64, 40, dtype=dtype)[:2])
    cublas.matmul(x, weight, on_device(np.zeros((3, 40), result or dtype)), WORKSPACE)
    (arguments,) = told
    weight_type, x_type, out_type = (arguments[place] for place in (8, 11, 15))
    assert (weight_type, x_type) == (number, number)
    assert out_type == (number if to is None else to)
