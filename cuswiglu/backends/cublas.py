"""The portable path on any CUDA GPU: cuBLAS products and one fused elementwise kernel.

cuBLAS is the one that CuPy has loaded, with CuPy's handle, but called by address: CuPy's own
wrapper refuses to be captured in a CUDA graph.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ..arrays import cupy_module

# FP32 products of at most this many bytes are held at a time; rows are computed in blocks.
PRODUCT_BYTES = 256 << 20
WORKSPACE_BYTES = 32 << 20  # what cuBLAS takes by default on Hopper
_BF16, _FP32 = 14, 0  # CUDA_R_16BF, CUDA_R_32F (library_types.h)
_COMPUTE_32F = 68  # CUBLAS_COMPUTE_32F
_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_DEFAULT_ALGORITHM = -1
# CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: split-K sums stay FP32, as the contract says.
_FULL_PRECISION_SUMS = 16


def swiglu(x: Any, gate: Any, up: Any, out: Any) -> None:
    """silu(x @ gate) * (x @ up), on the current device and stream.

    Parameters
    ----------
    x : (M, K) cupy.ndarray
    gate, up : (K, N) cupy.ndarray
        Contiguous along one dimension.
    out : (M, N) cupy.ndarray
        Products and activation are FP32; one rounding to BF16.
    """
    cupy = cupy_module()
    m, n = out.shape
    rows = max(1, min(m, PRODUCT_BYTES // (8 * n)))
    gate_product = cupy.empty((rows, n), cupy.float32)
    up_product = cupy.empty((rows, n), cupy.float32)
    for first in range(0, m, rows):
        block = slice(first, min(first + rows, m))
        count = block.stop - block.start
        matmul(x[block], gate, gate_product[:count])
        matmul(x[block], up, up_product[:count])
        _activate()(gate_product[:count], up_product[:count], out[block])


@functools.cache
def _activate() -> Any:
    return cupy_module().ElementwiseKernel(
        "float32 gate, float32 up",
        "T y",
        "y = T(gate / (1.0f + __expf(-gate)) * up)",
        "cuswiglu_silu_mul",
    )


@functools.cache
def _library() -> ctypes.CDLL:
    """The libcublas that CuPy has loaded."""
    cupy = cupy_module()
    cupy.cuda.get_cublas_handle()
    return ctypes.CDLL(f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}")


def _call(function: str, *arguments: Any) -> None:
    status = getattr(_library(), function)(*arguments)
    if status != 0:
        raise RuntimeError(f"{function} failed with cuBLAS status {status}")


def matmul(x: Any, weight: Any, out: Any, workspace: Any = None) -> None:
    """x @ weight on the current device and stream, FP32 accumulation, one rounding.

    Parameters
    ----------
    x : (M, K) cupy.ndarray
    weight : (K, N) cupy.ndarray
        Contiguous along one dimension.
    out : (M, N) cupy.ndarray
        BF16 or FP32.
    workspace : cupy.ndarray, optional
        Device memory for cuBLAS, which the caller keeps; from CuPy's pool by default. cuBLAS's own
        would become an allocation inside a captured graph.
    """
    cupy = cupy_module()
    (m, k), n = x.shape, weight.shape[1]
    columns_contiguous = weight.strides[1] == weight.itemsize or n == 1
    if columns_contiguous and (weight.strides[0] >= n * weight.itemsize or k == 1):
        transpose, leading = _NO_TRANSPOSE, _leading(weight.strides[0], weight, n, k)
    else:
        transpose, leading = _TRANSPOSE, _leading(weight.strides[1], weight, k, n)
    handle = ctypes.c_void_p(cupy.cuda.get_cublas_handle())
    _call("cublasSetStream_v2", handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr))
    if workspace is None:
        workspace = cupy.empty(WORKSPACE_BYTES, cupy.uint8)
    _call(
        "cublasSetWorkspace_v2",
        handle,
        ctypes.c_void_p(workspace.data.ptr),
        ctypes.c_size_t(workspace.nbytes),
    )
    mode = ctypes.c_int()
    _call("cublasGetMathMode", handle, ctypes.byref(mode))
    _call("cublasSetMathMode", handle, mode.value | _FULL_PRECISION_SUMS)
    try:
        # cuBLAS is column-major: it computes out^T = weight^T x^T.
        _call(
            "cublasGemmEx",
            handle,
            transpose,
            _NO_TRANSPOSE,
            n,
            m,
            k,
            ctypes.byref(ctypes.c_float(1)),
            ctypes.c_void_p(weight.data.ptr),
            _BF16,
            leading,
            ctypes.c_void_p(x.data.ptr),
            _BF16,
            _leading(x.strides[0], x, k, m),
            ctypes.byref(ctypes.c_float(0)),
            ctypes.c_void_p(out.data.ptr),
            _FP32 if out.dtype == cupy.float32 else _BF16,
            _leading(out.strides[0], out, n, m),
            _COMPUTE_32F,
            _DEFAULT_ALGORITHM,
        )
    finally:
        _call("cublasSetMathMode", handle, mode.value)


def _leading(stride_bytes: int, array: Any, columns: int, rows: int) -> int:
    """Leading dimension in elements; of a single row, any that is wide enough."""
    return columns if rows == 1 else int(stride_bytes // array.itemsize)
