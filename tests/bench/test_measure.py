"""One cell, with NumPy in CuPy's place: inputs, comparison with FP64, contenders that fail."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from cuswiglu.bench.contenders import (
    Contender,
    Found,
    InapplicableError,
    expected,
    inputs,
    limited,
)
from cuswiglu.bench.run import measure
from cuswiglu.bench.suites import SUITES
from tests.helpers.bench_host import CELL, contender, host, measured, raises, right

assert host  # a fixture


def test_a_right_contender_is_timed_and_compared(host):
    found = measured(contender("mine", right, choice="dual_pingpong_128x96_2x1"))
    mine = found.outcomes["mine"]
    assert (mine.microseconds, mine.error, found.sets) == (7.0, "", 2)
    assert 0 < mine.relative_error < 2**-9
    assert mine.off < 0.01
    assert mine.choice == "dual_pingpong_128x96_2x1"
    assert mine.captured


def test_a_contender_that_raises_costs_only_itself(host):
    broken = Contender("broken", raises(ImportError("no kernel\nfor this shape")), family="dual")
    late = contender("late", right, timed=raises(RuntimeError("cannot be captured")))
    found = measured(broken, late, contender("mine", right)).outcomes
    assert found["broken"].error == "ImportError: no kernel"
    assert found["broken"].family == "dual"
    assert found["late"].error == "RuntimeError: cannot be captured"
    assert found["late"].microseconds is None
    assert found["mine"].microseconds == 7.0
    assert host.timed == ["late", "mine"]


def ungated(drawn):
    """As `right`, without the activation."""
    x, w2 = (array.astype(np.float32) for array in (drawn.x, drawn.w2[0]))
    product = x @ w2.T
    return (product[:, : CELL.n] * product[:, CELL.n :]).astype(ml_dtypes.bfloat16)


def test_a_contender_without_the_activation_is_compared_with_what_it_computes(host):
    contenders = [
        replace(contender("bare", ungated), computes="ungated"),
        contender("wrong", ungated),
        replace(contender("wrong too", right), computes="ungated"),
    ]
    found = measured(*contenders).outcomes
    assert found["bare"].microseconds == 7.0
    assert found["bare"].relative_error < 2**-8
    assert found["wrong"].error.startswith("wrong result")
    assert found["wrong too"].error.startswith("wrong result")


@pytest.mark.parametrize("spoil", [0.0, np.nan, 2.0])
def test_a_wrong_contender_is_not_timed(host, spoil):
    def wrong(drawn):
        return (right(drawn).astype(np.float32) * spoil).astype(ml_dtypes.bfloat16)

    found = measured(contender("wrong", wrong), contender("mine", right)).outcomes["wrong"]
    assert found.error.startswith("wrong result: relative error")
    assert found.microseconds is None
    assert host.timed == ["mine"]


def test_a_crashed_gpu_ends_the_run_and_names_the_contender(host):
    def crash(drawn):
        host.lost = True
        raise RuntimeError("cudaErrorIllegalAddress")

    with pytest.raises(measure.DeviceLostError, match="dual_x crashed the GPU"):
        measured(contender("mine", right), contender("dual_x", crash))


def test_all_contenders_see_the_same_random_inputs(host):
    first, second = (inputs.draw(CELL, 0, whole_mlp=True) for _ in range(2))
    assert np.array_equal(first.x, second.x)
    assert not np.array_equal(first.x, inputs.draw(CELL, 1, whole_mlp=True).x)
    assert not np.array_equal(first.w2[0], first.w2[1])
    assert first.x.astype(np.float64).std() == pytest.approx(1, rel=0.02)
    assert first.w2[0].astype(np.float64).std() == pytest.approx(64**-0.5, rel=0.02)
    assert first.w_down[0].astype(np.float64).std() == pytest.approx(96**-0.5, rel=0.02)
    assert (first.w2[0].shape, first.w_down[0].shape) == ((192, 64), (64, 96))
    assert np.shares_memory(first.w_gate[0], first.w2[0])
    assert np.array_equal(first.w_up[1], first.w2[1][96:])


def test_interleaved_weights_have_gate_and_up_rows_in_turns(host):
    drawn = inputs.draw(CELL, 0, whole_mlp=False)
    assert np.array_equal(drawn.interleaved[1][0::2], drawn.w_gate[1])
    assert np.array_equal(drawn.interleaved[1][1::2], drawn.w_up[1])


def test_rows_are_sampled_from_the_first_to_the_last(host):
    drawn = inputs.draw(CELL, 0, whole_mlp=False)
    sampled = drawn.sample(drawn.x)
    assert sampled.shape == (expected.SAMPLED_ROWS, 64)
    assert np.array_equal(sampled[0], drawn.x[0])
    assert np.array_equal(sampled[-1], drawn.x[-1])


def test_fp64_results_of_products_swiglu_with_and_without_activation_and_mlp(host):
    drawn = inputs.draw(CELL, 0, whole_mlp=True)
    rows = drawn.sample(drawn.x)
    x, w2, down = (a.astype(np.float64) for a in (rows, drawn.w2[0], drawn.w_down[0]))
    product = x @ w2.T
    gate, up = product[:, :96], product[:, 96:]
    swiglu = gate / (1 + np.exp(-gate)) * up
    np.testing.assert_allclose(drawn.expected.of("product"), product)
    np.testing.assert_allclose(drawn.expected.of("swiglu"), swiglu)
    np.testing.assert_allclose(drawn.expected.of("ungated"), gate * up)
    np.testing.assert_allclose(drawn.expected.of("mlp"), swiglu @ down.T)


@pytest.mark.parametrize(
    ("suite", "whole_mlp"),
    [("paper", False), ("activations", False), ("mlp", True), ("decode", True), ("host", True)],
)
def test_a_suite_of_whole_mlps_has_weights_for_the_down_projection(host, suite, whole_mlp):
    seen = []

    def output(drawn):
        seen.append(len(drawn.w_down))
        return right(drawn)

    SUITES[suite].method.measure(CELL, [contender("mine", output)], seed=0, rounds=1)
    assert seen == [2 if whole_mlp else 0]


def test_poison_is_nan():
    array = np.zeros((3, 4), ml_dtypes.bfloat16)
    inputs.poison(array)
    assert np.isnan(array.astype(np.float32)).all()


def test_a_contender_that_is_not_made_for_a_cell_is_not_told_of(host):
    unfit = Contender("unfit", raises(InapplicableError("K is too large")))
    found = measured(unfit, contender("mine", right)).outcomes
    assert list(found) == ["mine"]


def test_contenders_can_be_limited_to_some_cells(host):
    both = Found([contender("mine", right), contender("other", right)], {"jax": "not here"})
    mine = limited(replace(both, contenders=both.contenders[:1]), lambda cell: cell.m > CELL.m)
    assert list(measured(*mine.contenders, both.contenders[1]).outcomes) == ["other"]
    assert mine.missing == both.missing


def test_a_suite_can_say_how_many_sets_calls_rotate_over(host):
    found = measure.measure(CELL, [contender("mine", right)], seed=0, rounds=1, sets=lambda cell: 5)
    assert found.sets == 5
