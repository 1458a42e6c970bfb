"""Selection with a tuned table: what was measured comes before what is estimated."""

from __future__ import annotations

import dataclasses
import warnings

import pytest

import cuswiglu
from cuswiglu import arrays
from cuswiglu.common.device import Device, DeviceInfo
from cuswiglu.kernels.estimate import Rates
from cuswiglu.runtime import plan
from cuswiglu.selection.select import Choice, estimates, select
from cuswiglu.selection.tuned import Key
from tests.helpers.compiled import GATED, PLAIN, entry_of, made_up, name_of, with_layouts
from tests.helpers.device_arrays import device_poisoned, on_device
from tests.helpers.problems import plain_problem, problem, weight
from tests.helpers.tables import H200, entry, table, table_for

ASKED = problem(m=300, n=200, k=136)
BY_KERNEL = pytest.mark.parametrize("kernel", GATED, ids=name_of)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@BY_KERNEL
@pytest.mark.parametrize("whose", ["user", "packaged"])
def test_what_was_measured_comes_before_what_is_estimated(tables, kernel, whose):
    asked = problem(m=300, n=200, k=136, major=kernel.layouts[0])
    tables(**{whose: table_for(asked, kernel.name, 5, 12.34)})
    choice = select(asked, H200)
    assert choice == Choice("sm90", kernel.name, kernel, 5, "measured: 12.3 us")


def test_without_a_measurement_the_cheapest_estimate_is_taken_and_said():
    best = estimates(ASKED, H200, GATED)[0]
    choice = select(ASKED, H200, "auto", GATED)
    assert (choice.kernel, choice.raster_rows, choice.split) == (best.kernel, 0, None)
    assert choice.reason == f"estimated: {best.us:.1f} us in {best.waves:.2f} waves"


def test_estimates_come_cheapest_first_and_by_name_where_they_are_equal():
    twins = [made_up(name=name) for name in "cab"]
    assert [found.kernel.name for found in estimates(ASKED, H200, twins)] == ["a", "b", "c"]
    times = [found.us for found in estimates(ASKED, H200, GATED)]
    assert times == sorted(times)


def test_a_measured_choice_of_gate_and_up_is_none_of_one_weight(tables):
    one = plain_problem(m=300, n=200, k=136)
    before = select(one, H200)
    tables(user=table_for(ASKED, PLAIN[-1].name))
    assert select(one, H200) == before


@pytest.mark.parametrize("kernel", PLAIN, ids=name_of)
def test_a_measured_choice_of_one_weight_is_taken(tables, kernel):
    one = plain_problem(m=300, n=200, k=136)
    tables(user=table_for(one, kernel.name, 5))
    choice = select(one, H200)
    assert (choice.kernel, choice.raster_rows) == (kernel, 5)


# Where cuBLAS was faster


def test_auto_takes_the_portable_path_where_it_was_faster_without_a_warning(tables):
    tables(user=table_for(ASKED, "cublas", 1, 12.34))
    assert select(ASKED, H200) == Choice("cublas", "cublas", None, 0, "measured: 12.3 us")


@BY_KERNEL
@pytest.mark.parametrize("kind", ["name", "family"])
def test_a_kernel_that_was_asked_for_is_taken_though_cublas_was_faster(tables, kernel, kind):
    asked = problem(major=kernel.layouts[0])
    before = select(asked, H200, getattr(kernel, kind))
    tables(user=table_for(asked, "cublas"))
    assert select(asked, H200, getattr(kernel, kind)) == before
    assert before.backend == "sm90"


def test_the_portable_path_can_be_asked_for_though_a_kernel_was_faster(tables):
    tables(user=table_for(ASKED, GATED[0].name))
    assert select(ASKED, H200, "cublas") == Choice("cublas", "cublas")


# What an entry cannot do


def test_a_measured_kernel_of_another_family_is_passed_over(tables):
    kernels = [made_up(name="a", family="one"), made_up(name="b", family="two")]
    tables(user=table_for(ASKED, "b"))
    assert select(ASKED, H200, "auto", kernels).kernel.name == "b"
    assert select(ASKED, H200, "one", kernels).kernel.name == "a"
    assert select(ASKED, H200, "a", kernels).reason.startswith("estimated")


def test_the_raster_of_a_measured_kernel_counts_where_it_is_asked_for_by_name(tables):
    kernel = GATED[-1]
    asked = problem(major=kernel.layouts[0])
    tables(user=table_for(asked, kernel.name, 5))
    assert select(asked, H200, kernel.name).raster_rows == 5


@pytest.mark.parametrize("name", ["a kernel of a later version", "", "numpy", "auto", "dual"])
def test_an_unknown_name_in_a_table_is_passed_over(tables, name):
    before = select(ASKED, H200)
    tables(user=table_for(ASKED, name), packaged=table_for(ASKED, name))
    assert select(ASKED, H200) == before


def test_a_measured_kernel_that_cannot_compute_the_problem_is_passed_over(tables):
    only_k = with_layouts(made_up(name="only_k"), "k")
    both = with_layouts(made_up(name="both"), "k", "n")
    asked = problem(major="n")
    tables(user=table_for(asked, "only_k"))
    assert select(asked, H200, "auto", [only_k, both]).kernel == both


def test_a_table_of_another_gpu_changes_nothing(tables):
    before = select(ASKED, H200)
    tables(user=table_for(ASKED, "cublas", gpu="NVIDIA H100 PCIe"))
    assert select(ASKED, H200) == before
    other = DeviceInfo("NVIDIA H100 PCIe", (9, 0), 114, H200.driver)
    assert select(ASKED, other).backend == "cublas"


def test_a_table_names_no_kernel_where_the_gpu_runs_none(tables):
    device = DeviceInfo("NVIDIA A100", (8, 0), 108)
    tables(user=table_for(ASKED, GATED[0].name, gpu=device.name))
    assert select(ASKED, device) == Choice("cublas", "cublas")


# Rates


def test_measured_rates_of_the_package_order_the_estimates(tables):
    kernels = [made_up(name=name) for name in ("a", "b")]
    tables(packaged=table(rates={"a": Rates(9.0, 9.0), "b": Rates(0.001, 0.001)}))
    assert select(ASKED, H200, "auto", kernels).kernel.name == "b"
    tables(packaged=table(rates={"b": Rates(9.0, 9.0), "a": Rates(0.001, 0.001)}))
    assert select(ASKED, H200, "auto", kernels).kernel.name == "a"


def test_measured_rates_of_the_user_order_the_estimates(tables):
    kernels = [made_up(name=name) for name in ("a", "b")]
    tables(user=table(rates={"a": Rates(9.0, 9.0), "b": Rates(0.001, 0.001)}))
    assert select(ASKED, H200, "auto", kernels).kernel.name == "b"


# The launch


def test_a_measured_kernel_is_launched_with_its_raster(gpu, tables):
    kernel = GATED[-1]
    asked = problem(m=300, n=200, k=136, major=kernel.layouts[0])
    tables(user=table_for(asked, kernel.name, 5))
    launch_of(asked)
    (launch,) = gpu.driver.launches
    assert launch.entry == entry_of(kernel, asked.layout)
    assert launch.named["raster_rows"] == 5


def test_an_estimated_kernel_is_launched_with_the_raster_it_was_built_with(gpu):
    launch_of(ASKED)
    (launch,) = gpu.driver.launches
    assert launch.named["raster_rows"] == select(ASKED, H200).kernel.raster_rows


def test_a_plan_takes_the_raster_of_the_choice(gpu):
    on_gpu = dataclasses.replace(ASKED, device=Device("cuda", 0))
    for rows in (3, 11):
        with gpu.cupy.cuda.Device(0):
            made = plan.kernel_plan(on_gpu, Choice("sm90", GATED[0].name, GATED[0], rows))
            views = views_of(on_gpu)
            made(views[0], views[1:3], views[3], 77)
        assert gpu.driver.launches[-1].named["raster_rows"] == rows


def test_a_call_takes_the_portable_path_where_it_was_faster(gpu, tables):
    tables(user=table_for(ASKED, "cublas"))
    launch_of(ASKED)
    assert [function for function, _, _ in gpu.portable] == ["swiglu"]
    assert gpu.driver.launches == []


def test_an_mlp_takes_what_was_measured_for_each_of_its_products(gpu, tables):
    down = plain_problem(m=300, n=136, k=200)
    choices = {Key.of(ASKED): entry(GATED[-1].name, 5), Key.of(down): entry(PLAIN[-1].name, 3)}
    tables(user=table(choices))
    x, gate, up = operands(ASKED)
    cuswiglu.mlp(x, gate, up, on_device(weight(200, 136, "k")))
    first, second = gpu.driver.launches
    assert (first.entry, first.named["raster_rows"]) == (entry_of(GATED[-1]), 5)
    assert (second.entry, second.named["raster_rows"]) == (entry_of(PLAIN[-1]), 3)


def operands(asked):
    weights = [on_device(weight(asked.k, asked.n, asked.layout)) for _ in range(2)]
    return device_poisoned(asked.m, asked.k), *weights


def launch_of(asked):
    cuswiglu.swiglu(*operands(asked))


def views_of(asked):
    names = ("x", "w_gate", "w_up", "out")
    values = (*operands(asked), device_poisoned(asked.m, asked.n))
    return [arrays.view(name, array) for name, array in zip(names, values, strict=True)]
