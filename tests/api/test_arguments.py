"""Bad arguments: a TypeError or ValueError with the argument, what came and what is needed.

Every test also checks that `out` was not touched (`calls.check_refused`). The tables are
(argument, bad value, words of the message); w_down is an argument of mlp and GatedMLP only.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cuswiglu
from tests.helpers.calls import FUNCTIONS, K_OUT, K, M, N, call, check_refused, good
from tests.helpers.host_arrays import BF16, full, poisoned


def for_each(*arguments):
    """Parametrise a test by function and argument; swiglu has no w_down."""
    pairs = [
        pytest.param(function, argument, id=f"{function}-{argument}")
        for function in FUNCTIONS
        for argument in arguments
        if (function, argument) != ("swiglu", "w_down")
    ]
    return pytest.mark.parametrize(("refused", "argument"), pairs, indirect=["refused"])


for_mlp = pytest.mark.parametrize("refused", ["mlp", "GatedMLP"], indirect=True)


@pytest.fixture(params=FUNCTIONS)
def refused(request):
    """refused(error, words, **changes), of one of the functions."""
    check = functools.partial(check_refused, request.param)
    check.width = N if request.param == "swiglu" else K_OUT
    return check


def windows(rows, columns, step):
    """Overlapping rows: a window that slides by `step` elements."""
    base = full(np.zeros(rows * columns))
    return np.lib.stride_tricks.as_strided(base, (rows, columns), (2 * step, 2))


# Types


@for_each("x", "w_gate", "w_up", "w_down", "out")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint16"])
def test_a_wrong_dtype_is_refused(refused, argument, dtype):
    value = good("mlp")[argument].astype(dtype) if argument != "out" else np.zeros((M, 8), dtype)
    words = [
        f"{argument} must have dtype bfloat16 or float16, got {dtype}",
        "bits of bfloat16 as uint16, int16, void16 through cuswiglu.asarray",
        "astype(ml_dtypes.bfloat16)",
    ]
    refused(TypeError, words, **{argument: value})


@for_each("x", "w_gate", "w_up", "w_down", "out")
@pytest.mark.parametrize("value", [[[1.0]], 3.5, "x"], ids=["list", "float", "str"])
def test_what_is_no_array_is_refused(refused, argument, value):
    words = [f"{argument} must be a NumPy or CuPy array", f"got {type(value).__name__}"]
    refused(TypeError, words, **{argument: value})


@for_each("x", "w_gate", "w_down")
def test_none_is_refused_where_an_array_is_needed(refused, argument):
    refused(TypeError, [f"{argument} must be a NumPy", "got NoneType"], **{argument: None})


def test_a_missing_w_up_is_refused_beside_a_w_gate_that_is_one_matrix(refused):
    refused(TypeError, ["w_up must be given", "PackedWeights (cuswiglu.pack)"], w_up=None)


@pytest.mark.parametrize("variant", [None, 3, ["dual"]], ids=str)
def test_a_variant_that_is_no_string_is_refused(refused, variant):
    refused(TypeError, ["variant must be a string", type(variant).__name__], variant=variant)


def test_a_stream_is_refused_for_arrays_on_the_cpu(refused):
    refused(TypeError, ["stream must be None for arrays on the CPU"], stream=0)


# Shapes


def test_x_of_another_k_is_refused(refused):
    words = [f"x must have K = {K} columns", "w_gate", f"got shape ({M}, 15)"]
    refused(ValueError, words, x=poisoned(M, 15))


def test_a_scalar_x_is_refused(refused):
    refused(ValueError, ["x must have shape (..., K)", "scalar"], x=poisoned())


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((12, N), ["w_up must have 16 rows (K", "w_gate", "got shape (12, 24)"]),
        ((K, 20), ["w_up must have the shape of w_gate, (16, 24)", "got (16, 20)"]),
    ],
    ids=["K", "N"],
)
def test_a_w_up_that_does_not_fit_w_gate_is_refused(refused, shape, words):
    refused(ValueError, words, w_up=poisoned(*shape))


@for_mlp
def test_a_w_down_of_another_n_is_refused(refused):
    words = ["w_down must have 24 rows (N", "w_gate", "got shape (20, 8)"]
    refused(ValueError, words, w_down=poisoned(20, 8))


@for_each("w_up", "w_down")
def test_a_transposed_weight_is_recognised(refused, argument):
    shape = {"w_up": (N, K), "w_down": (K_OUT, N)}[argument]
    words = [f"{argument} must have", f"got shape {shape}", f"passed as {argument}.T"]
    refused(ValueError, words, **{argument: poisoned(*shape)})


def test_transposed_gate_and_up_are_recognised(refused):
    """All three weights as a checkpoint has them: the likeliest mistake."""
    transposed = {"w_gate": poisoned(N, K), "w_up": poisoned(N, K), "w_down": poisoned(K_OUT, N)}
    refused(ValueError, [".T"], **transposed)


@for_each("w_gate", "w_up", "w_down")
@pytest.mark.parametrize("shape", [(), (16,), (1, 16, 24)], ids=str)
def test_a_weight_of_another_rank_is_refused(refused, argument, shape):
    words = [f"{argument} must be 2-D", f"got shape {shape}"]
    refused(ValueError, words, **{argument: poisoned(*shape)})


@pytest.mark.parametrize("shape", [(0, N), (K, 0)], ids=["no K", "no N"])
def test_empty_weights_are_refused(refused, shape):
    refused(ValueError, ["w_gate must not be empty", f"got shape {shape}"], w_gate=poisoned(*shape))


@for_mlp
def test_an_empty_w_down_is_refused(refused):
    refused(ValueError, ["w_down must not be empty", "got shape (24, 0)"], w_down=poisoned(N, 0))


@pytest.mark.parametrize(
    "shape",
    [
        lambda width: (M + 1, width),
        lambda width: (M, width + 1),
        lambda width: (M * width,),
        lambda width: (1, M, width),
    ],
    ids=["rows", "columns", "1-D", "3-D"],
)
def test_an_out_of_another_shape_is_refused(refused, shape):
    shape = shape(refused.width)
    words = [f"out must have shape {(M, refused.width)}", f"got {shape}"]
    refused(ValueError, words, out=poisoned(*shape))


# Layouts


@for_each("w_gate", "w_up", "w_down")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda weight: np.repeat(np.repeat(weight, 2, 0), 2, 1)[::2, ::2],
        lambda weight: weight[::-1],
        lambda weight: weight[:, ::-1],
        lambda weight: np.broadcast_to(weight[:1], weight.shape),
        lambda weight: windows(*weight.shape, step=4),
    ],
    ids=["both strided", "rows reversed", "columns reversed", "broadcast", "overlapping"],
)
def test_a_weight_of_an_unsupported_layout_is_refused(refused, argument, spoil):
    value = spoil(np.ascontiguousarray(good("mlp")[argument]))
    words = [
        f"{argument} must be contiguous along one of its dimensions",
        str(tuple(stride // 2 for stride in value.strides)),
        "contiguous copy",
    ]
    refused(ValueError, words, **{argument: value})


LAYOUTS = {
    "last dimension strided": (
        lambda columns: poisoned(M, 2 * columns)[:, ::2],
        "must be contiguous along its last dimension",
    ),
    "column-major": (
        lambda columns: poisoned(columns, M).T,
        "must be contiguous along its last dimension",
    ),
    "rows reversed": (lambda columns: poisoned(M, columns)[::-1], "rows must not overlap"),
    "rows broadcast": (
        lambda columns: np.lib.stride_tricks.as_strided(poisoned(1, columns), (M, columns), (0, 2)),
        "rows must not overlap",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@for_each("x", "out")
def test_rows_that_one_stride_does_not_walk_are_refused(refused, argument, layout):
    make, words = LAYOUTS[layout]
    value = make(K if argument == "x" else refused.width)
    remedy = f"pass numpy.ascontiguousarray({argument})"
    refused(ValueError, [argument, words, remedy], **{argument: value})


def test_overlapping_rows_of_x_are_refused(refused):
    refused(ValueError, ["x's rows must not overlap", "got a row stride of 4"], x=windows(M, K, 4))


@for_each("x", "out")
@pytest.mark.parametrize(
    "make",
    [
        lambda columns: poisoned(3, 2, columns).transpose(1, 0, 2),
        lambda columns: poisoned(2, 4, columns)[:, :3],
    ],
    ids=["transposed", "sliced"],
)
def test_leading_dimensions_that_one_stride_does_not_walk_are_refused(refused, argument, make):
    value = make(K if argument == "x" else refused.width)
    others = {"x": poisoned(2, 3, K), "out": poisoned(2, 3, refused.width)}
    words = [
        f"{argument}'s leading dimensions must be walked by one stride",
        str(tuple(stride // 2 for stride in value.strides)),
        f"pass numpy.ascontiguousarray({argument})",
    ]
    refused(ValueError, words, **others | {argument: value})


@for_each("x", "w_gate", "w_up", "w_down", "out")
def test_strides_of_broken_elements_are_refused(refused, argument):
    shape = (M, refused.width) if argument == "out" else good("mlp")[argument].shape
    memory = np.full(4096, 0xFF, np.uint8)  # 0xFFFF is a NaN
    value = np.ndarray(shape, BF16, memory, strides=(2 * shape[1] + 1, 2))
    refused(ValueError, [f"{argument} must have strides of whole elements"], **{argument: value})


# out


def test_a_read_only_out_is_refused(refused):
    out = poisoned(M, refused.width)
    out.flags.writeable = False
    refused(ValueError, ["out must be writable", "read-only"], out=out)


@for_each("x", "w_gate", "w_up", "w_down")
def test_an_out_that_overlaps_an_input_is_refused(refused, argument):
    shape = good("mlp")[argument].shape
    elements = M * refused.width
    memory = poisoned(elements + int(np.prod(shape)) - 1)
    out, value = memory[:elements].reshape(M, -1), memory[elements - 1 :].reshape(shape)
    refused(ValueError, [f"out must not overlap {argument}"], **{argument: value}, out=out)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_out_between_the_rows_of_x_is_taken(function):
    """Column slices of one buffer: interleaved in memory, but apart."""
    arguments = good(function)
    width = arguments["out"].shape[1]
    memory = poisoned(M, K + width)
    memory[:, :K] = arguments["x"]
    expected = call(function, **arguments).copy()
    call(function, **arguments | {"x": memory[:, :K], "out": memory[:, K:]})
    np.testing.assert_array_equal(memory[:, K:], expected)


# Variants


def test_an_unknown_variant_is_refused_and_the_known_are_listed(refused):
    known = ["auto", "cublas", "numpy", "dual", *(kernel.name for kernel in cuswiglu.variants())]
    refused(ValueError, ["variant must be one of", *known, "got 'duel'"], variant="duel")


def test_gated_mlp_refuses_an_unknown_variant_when_it_is_made():
    weights = functools.partial(cuswiglu.GatedMLP, *list(good("mlp").values())[1:4])
    with pytest.raises(ValueError, match="variant must be one of"):
        weights(variant="duel")


@pytest.mark.parametrize("variant", ["cublas", "dual", cuswiglu.variants()[0].name])
def test_a_gpu_variant_is_refused_for_arrays_on_the_cpu(refused, variant):
    words = [f"variant {variant!r} needs arrays on a CUDA device", "got arrays on the CPU"]
    refused(ValueError, [*words, "cupy.asarray"], variant=variant)
