"""The portable path on any CUDA GPU: cuBLAS products and one fused elementwise kernel.

The cuBLAS library is the one that CuPy has loaded, with CuPy's handle, but called through ctypes:
CuPy's own wrapper refuses to be captured in a CUDA graph.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from typing import Any

from ..arrays import cupy_module
from ..common.dtypes import ELEMENTS
from ..problem.activations import SILU, TANH_CUBE, TANH_SCALE, Activation

# FP32 products of at most this many bytes are held at a time; rows are computed in blocks.
PRODUCT_BYTES = 256 << 20
WORKSPACE_BYTES = 32 << 20  # what cuBLAS takes by default on Hopper
#: What products are of, and CUDA_R_32F (library_types.h), as sums may be.
_TYPES = {"float32": 0} | {name: element.cublas for name, element in ELEMENTS.items()}
_COMPUTE_32F = 68  # CUBLAS_COMPUTE_32F
_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_DEFAULT_ALGORITHM = -1
# CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: split-K sums stay FP32, as the contract says.
_FULL_PRECISION_SUMS = 16
#: Bias that changes nothing, not even the sign of a zero.
_NOTHING = -0.0
#: Activation -> C expression of y in gate and up, all FP32. `at_most`, `at_least` let NaN pass.
_EXPRESSIONS = {
    "silu": "gate / (1.0f + __expf(-gate)) * up",
    "gelu": "gate * normcdff(gate) * up",
    "gelu_tanh": "gate / (1.0f + __expf(gate * "
    f"({-2 * TANH_SCALE:.9}f + {-2 * TANH_SCALE * TANH_CUBE:.9}f * gate * gate))) * up",
    "relu": "at_least(gate, 0.0f) * up",
    "sigmoid": "1.0f / (1.0f + __expf(-gate)) * up",
    "identity": "gate * up",
    "clamped": "at_most(gate, limit) / (1.0f + __expf(-alpha * at_most(gate, limit))) * "
    "(at_least(at_most(up, limit), -limit) + 1.0f)",
}
_LIMITS = """
__device__ float at_most(float x, float limit) { return x > limit ? limit : x; }
__device__ float at_least(float x, float limit) { return x < limit ? limit : x; }
"""


def swiglu(
    x: Any,
    gate: Any,
    up: Any,
    out: Any,
    *,
    activation: Activation = SILU,
    biases: tuple[Any, ...] = (),
) -> None:
    """Compute activation(x @ gate + b_gate, x @ up + b_up) on the current device and stream.

    Parameters
    ----------
    x : (M, K) cupy.ndarray
    gate, up : (K, N) cupy.ndarray
        Contiguous along one dimension.
    out : (M, N) cupy.ndarray
        Sums and activation are FP32; one rounding to out's dtype.
    activation : Activation
    biases : (b_gate, b_up), or none
        (N,) cupy.ndarray, or None.
    """
    activate = activation_kernel(activation.name, *activation.parameters)
    numbers = activation.parameters.values()
    b_gate, b_up = (_in_fp32(bias) for bias in biases or (None, None))
    for block, (gate_product, up_product) in _blocks(out, 2):
        matmul(x[block], gate, gate_product)
        matmul(x[block], up, up_product)
        activate(gate_product, up_product, b_gate, b_up, *numbers, out[block])


def _blocks(out: Any, count: int) -> Iterator[tuple[slice, Any]]:
    """Yield blocks of rows, each with buffers for `count` FP32 products; buffers are reused."""
    cupy = cupy_module()
    m, n = out.shape
    rows = max(1, min(m, PRODUCT_BYTES // (4 * count * n)))
    products = cupy.empty((count, rows, n), cupy.float32)
    for first in range(0, m, rows):
        block = slice(first, min(first + rows, m))
        yield block, products[:, : block.stop - block.start]


def _in_fp32(bias: Any) -> Any:
    """Convert a bias to FP32 for the elementwise kernels; `_NOTHING` if there is none."""
    return _NOTHING if bias is None else bias.astype(cupy_module().float32)


@functools.cache
def activation_kernel(name: str, *parameters: str) -> Any:
    """Make the elementwise kernel of an activation: biases, activation, product, one rounding."""
    takes = "gate_product", "up_product", "b_gate", "b_up", *parameters
    return cupy_module().ElementwiseKernel(
        ", ".join(f"float32 {one}" for one in takes),
        "T y",
        "float gate = gate_product + b_gate; float up = up_product + b_up; "
        f"y = T({_EXPRESSIONS[name]})",
        f"cuswiglu_{name}",
        preamble=_LIMITS,
    )


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the libcublas that CuPy has loaded."""
    cupy = cupy_module()
    cupy.cuda.get_cublas_handle()
    return ctypes.CDLL(f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}")


def _call(function: str, *arguments: Any) -> None:
    status = getattr(_library(), function)(*arguments)
    if status != 0:
        raise RuntimeError(f"{function} failed with cuBLAS status {status}")


@functools.cache
def bias_kernel() -> Any:
    """Make the elementwise kernel that adds a bias to a product, with one rounding."""
    return cupy_module().ElementwiseKernel(
        "float32 product, float32 bias", "T y", "y = T(product + bias)", "cuswiglu_add_bias"
    )


def matmul(
    x: Any, weight: Any, out: Any, workspace: Any = None, *, biases: tuple[Any, ...] = ()
) -> None:
    """Compute x @ weight on the current device and stream, FP32 accumulation, one rounding.

    Parameters
    ----------
    x : (M, K) cupy.ndarray
    weight : (K, N) cupy.ndarray
        Contiguous along one dimension.
    out : (M, N) cupy.ndarray
        Of x's dtype or FP32.
    workspace : cupy.ndarray, optional
        Device memory for cuBLAS, which the caller keeps; from CuPy's pool by default. Memory that
        cuBLAS allocates itself would become an allocation inside a captured graph.
    biases : (bias, None), or none
        An (N,) cupy.ndarray, added before the rounding.
    """
    cupy = cupy_module()
    if biases and biases[0] is not None:
        bias = _in_fp32(biases[0])
        for block, (product,) in _blocks(out, 1):
            matmul(x[block], weight, product, workspace)
            bias_kernel()(product, bias, out[block])
        return
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
        # cuBLAS is column-major: it computes out^T = weight^T x^T. The 64-bit call, as strides may
        # not fit in 32 bits, and truncated ones would not be noticed.
        _call(
            "cublasGemmEx_64",
            handle,
            transpose,
            _NO_TRANSPOSE,
            ctypes.c_int64(n),
            ctypes.c_int64(m),
            ctypes.c_int64(k),
            ctypes.byref(ctypes.c_float(1)),
            ctypes.c_void_p(weight.data.ptr),
            _TYPES[weight.dtype.name],
            ctypes.c_int64(leading),
            ctypes.c_void_p(x.data.ptr),
            _TYPES[x.dtype.name],
            ctypes.c_int64(_leading(x.strides[0], x, k, m)),
            ctypes.byref(ctypes.c_float(0)),
            ctypes.c_void_p(out.data.ptr),
            _TYPES[out.dtype.name],
            ctypes.c_int64(_leading(out.strides[0], out, n, m)),
            _COMPUTE_32F,
            _DEFAULT_ALGORITHM,
        )
    finally:
        _call("cublasSetMathMode", handle, mode.value)


def _leading(stride_bytes: int, array: Any, columns: int, rows: int) -> int:
    """Leading dimension in elements; for a single row, any that is wide enough."""
    return columns if rows == 1 else int(stride_bytes // array.itemsize)
