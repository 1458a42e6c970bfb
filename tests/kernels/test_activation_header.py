"""Activations of the kernels' general epilogue, their own code compiled for the host."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from build_scripts import toolchain
from cuswiglu.problem import activations
from tests.helpers import fp64
from tests.helpers.fake_driver import coefficients
from tests.helpers.host_sources import KERNELS, compiled

SOURCE = """
#include <math.h>
#define __expf expf
#include "epilogue/activation.cuh"

namespace {
struct Arguments {
  int activation;
  float linear, cubic, limit, up_constant;
  float const *b_first, *b_second;
};
}  // namespace

extern "C" float activated(int code, float linear, float cubic, float limit, float up_constant,
                           float gate, float up) {
  Arguments const arguments{code, linear, cubic, limit, up_constant, nullptr, nullptr};
  float y = 0;
  cuswiglu::dispatch_activation(cuswiglu::EpilogueArgs<float>(arguments),
                                [&](auto combine) { y = combine(gate, up); });
  return y;
}
"""
BY_ACTIVATION = pytest.mark.parametrize("activation", fp64.ACTIVATIONS, ids=str)


@pytest.fixture(scope="module")
def activated(tmp_path_factory):
    """activated(activation, gate, up): y, as a kernel computes it from what it is told."""
    try:
        includes = toolchain.include_path(KERNELS)
    except toolchain.ToolchainError as error:
        pytest.skip(str(error))
    function = compiled(tmp_path_factory.mktemp("header"), "activated", SOURCE, includes).activated
    function.argtypes = [ctypes.c_int, *6 * [ctypes.c_float]]
    function.restype = ctypes.c_float

    def call(activation, gate, up):
        told = coefficients(activation)
        numbers = (told[name] for name in ("linear", "cubic", "limit", "up_constant"))
        return function(activations.find(activation).code, *numbers, gate, up)

    return np.vectorize(call, otypes=[np.float32], excluded={0})


def in_fp64(activation, gate, up):
    """The same in FP64, rounded to FP32."""
    return fp64.ACTIVATIONS[activation](np.array(gate), np.array(up)).astype(np.float32)


@BY_ACTIVATION
def test_ordinary_gates_give_what_fp64_says(activated, activation):
    gate, up = np.meshgrid(np.linspace(-14, 14, 113), [-9, -0.5, 0, 2, 7.5])
    # The references of GELU and GELU by tanh lose small tails.
    with np.errstate(over="ignore"):
        found, expected = (of(activation, gate, up) for of in (activated, in_fp64))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-13)


@BY_ACTIVATION
@pytest.mark.parametrize("gate", [-np.inf, -3e38, -1e30, -1e4, 1e4, 1e30, 3e38, np.inf, np.nan])
def test_extreme_gates_give_what_fp64_says(activated, activation, gate):
    """NaN and infinities where they are, and zero where it is almost."""
    with np.errstate(all="ignore"):
        found, expected = (of(activation, gate, 0.5) for of in (activated, in_fp64))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_small_sigmoids_are_as_precise_as_others(activated):
    gate = np.linspace(-85, -10, 76)
    found = activated("sigmoid", gate, 1.0)
    np.testing.assert_allclose(found, in_fp64("sigmoid", gate, 1.0), rtol=2e-5)


def test_the_identity_changes_no_bit_of_a_gate(activated):
    gate = np.array([-np.inf, -3e38, -1.5, -(2.0**-126), -0.0, 0.0, 7.25, np.inf], np.float32)
    found = activated("identity", gate, 1.0)
    assert (found.view(np.uint32) == gate.view(np.uint32)).all()
