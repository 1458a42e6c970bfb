"""From arrays to a problem: sizes, layouts, what TMA can and cannot express."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cuswiglu.arrays import view
from cuswiglu.common.device import CPU
from cuswiglu.problem import (
    Layout,
    Matrix,
    activations,
    describe,
    weight_layout,
    weight_matrix,
)
from tests.helpers.host_arrays import poisoned
from tests.helpers.problems import (
    BADLY_PADDED,
    UNALIGNED,
    of_elements,
    packed_problem,
    plain_problem,
    problem,
    weight,
)


@pytest.mark.parametrize(
    ("array", "major"),
    [
        (poisoned(8, 16), "n"),
        (poisoned(16, 8).T, "k"),
        (poisoned(8, 20)[:, 2:18], "n"),
        (poisoned(16, 12)[:, 2:10].T, "k"),
        (poisoned(8, 8), "n"),
        (poisoned(8, 8).T, "k"),
        (poisoned(1, 16), "n"),
        (poisoned(8, 1), "n"),
        (poisoned(8, 32)[:, :1], "n"),
        (poisoned(8, 32)[:, ::2], None),
        (poisoned(8, 16)[::-1], None),
        (poisoned(8, 16)[:, ::-1], None),
        (np.broadcast_to(poisoned(1, 16), (8, 16)), None),
    ],
)
def test_the_layout_of_a_weight_is_read_from_its_strides(array, major):
    assert weight_layout(view("w_gate", array)) == major


@pytest.mark.parametrize("major", ["k", "n"])
def test_a_problem_has_the_sizes_of_its_arrays(major):
    found = problem(m=64, n=96, k=128, major=major)
    assert (found.m, found.n, found.k, found.layout, found.device) == (64, 96, 128, major, CPU)


def test_leading_dimensions_are_rows_of_the_problem():
    found = problem(m=64, x=poisoned(4, 16, 128), out=poisoned(2, 32, 96))
    assert found == problem(m=64)


def test_two_weights_are_gate_and_up_and_one_is_not():
    assert problem().gated
    assert not plain_problem().gated


def test_operands_are_x_the_weights_and_out():
    assert [found.name for found in problem().matrices] == ["x", "w_gate", "w_up", "out"]
    assert [found.name for found in plain_problem().matrices] == ["x", "weight", "out"]


@pytest.mark.parametrize(("m", "n"), [(1, 96), (64, 96), (64, 8)])
def test_without_out_it_is_the_problem_of_a_new_array(m, n):
    """What `explain` describes is what a call would compute."""
    arrays = {"x": poisoned(m, 128), "w_gate": weight(128, n, "k"), "w_up": weight(128, n, "k")}
    x, gate, up = (view(name, array) for name, array in arrays.items())
    assert describe(x, (gate, up)) == problem(m=m, n=n)


def test_weights_of_different_layouts_are_mixed():
    assert problem(gate=weight(128, 96, "k"), up=weight(128, 96, "n")).layout == "mixed"


@pytest.mark.parametrize(
    ("major", "expected"),
    [
        ("k", Matrix("w_up", 96, 128, 144, 16, "bfloat16")),
        ("n", Matrix("w_up", 128, 96, 112, 16, "bfloat16")),
    ],
)
def test_an_operand_is_seen_with_its_contiguous_dimension_as_columns(major, expected):
    assert weight_matrix(view("w_up", weight(128, 96, major, pad=16))) == expected


@pytest.mark.parametrize("offset", range(16))
def test_an_operand_knows_the_alignment_of_its_address(offset):
    found = weight_matrix(view("w_up", poisoned(8, 16, offset=offset)))
    assert found.alignment == min(16, 2 * offset & -2 * offset or 16)


def test_problems_on_other_memory_of_the_same_kind_are_equal():
    """So that they share a plan."""
    assert problem() == problem()
    assert hash(problem()) == hash(problem())


@pytest.mark.parametrize(
    "other",
    [
        lambda: problem(m=65),
        lambda: problem(n=104),
        lambda: problem(k=136),
        lambda: problem(major="n"),
        lambda: problem(x=poisoned(64, 136)[:, :128]),
        lambda: problem(out=poisoned(64, 104)[:, :96]),
        lambda: problem(gate=weight(128, 96, "k", pad=8)),
        UNALIGNED["x"],
        plain_problem,
    ],
    ids=[
        *("M", "N", "K", "layout", "stride of x", "stride of out", "stride of w_gate"),
        *("alignment", "one weight"),
    ],
)
def test_problems_that_need_other_plans_differ(other):
    assert other() != problem()


# What TMA cannot express


@pytest.mark.parametrize("major", ["k", "n"])
def test_tma_expresses_aligned_and_padded_operands(major):
    padded = problem(
        x=poisoned(64, 136, offset=8)[:, 8:],
        gate=weight(128, 96, major, offset=8, pad=8),
        up=weight(128, 96, major, offset=16, pad=24),
        out=poisoned(64, 112, offset=24)[:, 8:104],
    )
    assert padded.tma_obstacle() is None


@pytest.mark.parametrize("name", UNALIGNED)
@pytest.mark.parametrize(("offset", "alignment"), [(1, 2), (2, 4), (4, 8), (12, 8)])
def test_tma_needs_an_address_of_16_bytes(name, offset, alignment):
    assert UNALIGNED[name](offset).tma_obstacle() == (
        f"{name}'s address is a multiple of {alignment} bytes only, TMA needs 16: "
        f"pass {name} in an array of its own, or as a slice that begins at a multiple of 8 elements"
    )


@pytest.mark.parametrize(
    ("name", "row_bytes"), [("x", 264), ("w_gate", 264), ("w_up", 264), ("out", 200)]
)
def test_tma_needs_a_row_stride_of_16_bytes(name, row_bytes):
    assert BADLY_PADDED[name]().tma_obstacle() == (
        f"{name}'s row stride is {row_bytes} bytes, TMA needs a multiple of 16: "
        f"pass {name} contiguous, or with rows padded to a multiple of 8 elements"
    )


@pytest.mark.parametrize("pad", [1, 3, 12])
def test_the_row_stride_of_a_single_row_is_no_obstacle(pad):
    one = problem(m=1, x=poisoned(1, 128 + pad)[:, :128], out=poisoned(1, 96 + pad)[:, :96])
    assert one.tma_obstacle() is None
    assert one == problem(m=1)


@pytest.mark.parametrize(("rows", "columns", "of"), [(2**31, 8, "rows"), (8, 2**31, "columns")])
def test_tma_counts_no_further_than_32_bits(rows, columns, of):
    large = Matrix("x", rows, columns, columns, 16, "bfloat16")
    assert large.tma_obstacle() == (
        f"x has {2**31} {of}, TMA counts up to {2**31 - 1024}: pass x in parts"
    )


def test_tma_reaches_beyond_2_to_the_31_elements_and_32_bits_of_stride():
    assert Matrix("x", 2**30, 2**17, 2**33, 16, "bfloat16").tma_obstacle() is None


# Entry points


@pytest.mark.parametrize(
    ("asked", "epilogue"),
    [
        (problem(), "silu"),
        (plain_problem(), "none"),
        (dataclasses.replace(problem(), activation=activations.find("relu")), "general"),
        (dataclasses.replace(problem(), biased=True), "general"),
        (dataclasses.replace(plain_problem(), biased=True), "general"),
        # A product has no activation, whatever is said.
        (dataclasses.replace(plain_problem(), activation=activations.find("relu")), "none"),
    ],
)
def test_a_problem_asks_for_the_epilogue_that_it_needs(asked, epilogue):
    assert asked.entry_point.epilogue == epilogue


def test_a_problem_asks_for_the_layout_and_the_element_types_that_its_matrices_have():
    asked = of_elements(problem(major="n"), "float16", "bfloat16", "float16").entry_point
    assert (asked.layout, asked.x, asked.w, asked.out) == (
        Layout.N, "float16", "bfloat16", "float16",
    )  # fmt: skip
    assert (asked.scales, asked.grouped) == ("none", False)


def test_entry_points_are_told_apart_by_what_they_are_compiled_for_not_by_name():
    asked = problem().entry_point
    assert dataclasses.replace(asked, name="dual_k") == asked
    assert dataclasses.replace(asked, w="float16", name="dual_k") != asked
    assert dataclasses.replace(asked, grouped=True) != asked


@pytest.mark.parametrize(("granularity", "layout"), [(8, Layout.PACKED_8), (1, Layout.PACKED_1)])
def test_packed_weights_have_a_layout_for_each_granularity(granularity, layout):
    asked = packed_problem(granularity=granularity)
    assert (asked.layout, asked.layout.packing, asked.gated) == (layout, granularity, True)
    assert str(asked.layout) == f"p{granularity}"


def test_bytes_of_a_row_are_those_of_its_elements():
    assert Matrix("x", 64, 128, 144, 16, "float16").row_bytes == 288
