"""`cuswiglu.explain`: the choice and its reasons, without computing anything."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import cuswiglu
from cuswiglu import Explanation, explain
from cuswiglu.common.device import DeviceInfo
from cuswiglu.selection import select as select_module
from cuswiglu.selection.select import Choice, select
from tests.helpers.compiled import (
    DECODE_PLAIN,
    GATED,
    PLAIN,
    entry_of,
    made_up,
    pretend_compiled,
    with_layouts,
)
from tests.helpers.device_arrays import on_device
from tests.helpers.host_arrays import draw, poisoned
from tests.helpers.problems import problem, weight
from tests.helpers.tables import H200, entry, table_for

M, N, K = 300, 200, 136
A100 = DeviceInfo("NVIDIA A100", (8, 0), 108)
ASKED = problem(m=M, n=N, k=K)


def arrays(major="k", m=M):
    return poisoned(m, K), weight(K, N, major), weight(K, N, major)


def explained(*values, **options):
    return explain(*values, **{"device": H200} | options)


# What is explained


def test_numpy_arrays_are_explained_for_a_gpu_that_is_not_there():
    found = explained(*arrays())
    assert isinstance(found, Explanation)
    assert found.problem == ASKED
    assert found.choice == select(ASKED, H200)
    assert found.measured is None


def test_every_kernel_that_is_considered_has_an_estimate_and_those_that_cannot_an_obstacle():
    found = explained(*arrays())
    able = [estimate.kernel.name for estimate in found.estimates]
    gated = [kernel for kernel in cuswiglu.variants() if kernel.gated]
    can = [kernel for kernel in gated if kernel.name not in found.obstacles]
    considered = select_module.prune(ASKED, can)
    assert sorted(able) == sorted(kernel.name for kernel in considered)
    assert found.choice.kernel == found.estimates[0].kernel
    assert not set(able) & {kernel.name for kernel in [*PLAIN, *DECODE_PLAIN]}
    times = [estimate.us for estimate in found.estimates]
    assert times == sorted(times)


def test_an_obstacle_is_in_the_words_of_the_kernel(monkeypatch):
    only_k = with_layouts(made_up(name="only_k"), "k")
    both = with_layouts(made_up(name="both"), "k", "n")
    pretend_compiled(monkeypatch, only_k, both)
    found = explained(*arrays(major="n"))
    assert found.obstacles == {"only_k": only_k.obstacle(problem(major="n"))}
    assert [estimate.kernel.name for estimate in found.estimates] == ["both"]
    assert found.choice.variant == "both"


def test_where_no_kernel_can_the_portable_path_is_chosen_with_the_calls_warning():
    _, gate, up = arrays()
    with pytest.warns(UserWarning, match="x's address is a multiple of 2 bytes only") as record:
        found = explained(poisoned(M, K, offset=1), gate, up)
    assert len(record) == 1
    assert record[0].filename == explained.__code__.co_filename
    assert found.choice == Choice("cublas", "cublas")
    assert found.estimates == []
    assert set(found.obstacles) == {k.name for k in cuswiglu.variants() if k.gated}


def test_a_measurement_is_told_beside_the_estimates(tables):
    measured = entry(GATED[-1].name, 5, 12.34)
    tables(user=table_for(ASKED, GATED[-1].name, 5, 12.34))
    found = explained(*arrays())
    assert found.measured == measured
    assert (found.choice.variant, found.choice.raster_rows) == (GATED[-1].name, 5)
    assert found.estimates


@pytest.mark.parametrize("variant", [GATED[-1].name, GATED[-1].family, "cublas"])
def test_another_variant_is_explained_as_a_call_would_choose(variant):
    found = explained(*arrays(), variant=variant)
    assert found.choice == select(ASKED, H200, variant)


@pytest.mark.parametrize("variant", ["duel", "numpy"])
def test_a_variant_that_a_call_refuses_is_refused(variant):
    with pytest.raises(ValueError, match=f"variant.*{variant}"):
        explained(*arrays(), variant=variant)


def test_a_gpu_that_runs_no_kernels_has_no_estimates():
    found = explained(*arrays(), device=A100)
    assert (found.choice, found.estimates, found.obstacles) == (Choice("cublas", "cublas"), [], {})


def test_arrays_on_the_cpu_are_computed_there():
    found = explain(*arrays())
    assert (found.choice, found.estimates) == (Choice("numpy", "numpy"), [])


def test_arrays_on_a_gpu_are_explained_for_it_without_a_launch(gpu):
    found = explain(*map(on_device, arrays()))
    on_gpu = dataclasses.replace(ASKED, device=found.problem.device)
    assert found.problem == on_gpu
    assert (found.problem.device.kind, found.problem.device.index) == ("cuda", 0)
    assert found.choice == select(on_gpu, H200)
    assert gpu.driver.launches == gpu.portable == []
    assert gpu.driver.count("cuLibraryLoadData") == 0


def test_what_is_explained_is_what_a_call_launches(gpu):
    values = [on_device(array) for array in arrays()]
    chosen = explain(*values).choice
    cuswiglu.swiglu(*values)
    (launch,) = gpu.driver.launches
    assert launch.entry == entry_of(chosen.kernel)
    assert launch.named["raster_rows"] == chosen.kernel.raster_rows


def test_leading_dimensions_are_rows():
    x, gate, up = arrays()
    assert explained(x.reshape(3, 100, K), gate, up).problem == ASKED


def test_nothing_is_computed_or_written():
    x, gate, up = draw(M, K, N)
    before = [array.copy() for array in (x, gate, up)]
    explained(x, gate, up)
    for array, copy in zip((x, gate, up), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_bad_arguments_are_refused_as_by_a_call():
    x, gate, up = arrays()
    with pytest.raises(ValueError, match="w_up must have the shape of w_gate"):
        explained(x, gate, up[:, :8])
    with pytest.raises(ValueError, match=f"x must have K = {K} columns"):
        explained(x[:, :8], gate, up)
    with pytest.raises(TypeError, match="x must be a NumPy or CuPy array"):
        explained([1.0], gate, up)


# How it prints


def test_it_prints_the_problem_and_the_choice_with_its_reason():
    found = explained(*arrays())
    first, second, *_ = str(found).splitlines()
    for words in (f"M = {M}", f"N = {N}", f"K = {K}", "gate and up", "weights along k"):
        assert words in first
    assert second == f"chosen: {found.choice.variant} ({found.choice.reason})"
    assert "estimated" in second


def test_it_prints_a_line_for_each_estimate_in_order():
    found = explained(*arrays())
    lines = str(found).splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[0] == "estimate")
    for line, estimate in zip(lines[head + 1 :], found.estimates, strict=False):
        us, unit, waves, tiles, *rows, padding, name = line.split()
        assert (us, unit, name) == (f"{estimate.us:.1f}", "us", estimate.kernel.name)
        assert waves == f"{estimate.waves:.2f}"
        assert int(tiles) == estimate.tiles
        assert " ".join(rows) == str(estimate.rows)
        assert padding == f"{estimate.rows.padding(M):.1%}"
    assert sum(" us " in line for line in lines[head:]) == len(found.estimates)


def test_it_prints_why_a_kernel_cannot(monkeypatch):
    only_k = with_layouts(made_up(name="only_k"), "k")
    pretend_compiled(monkeypatch, only_k, with_layouts(made_up(name="both"), "k", "n"))
    lines = str(explained(*arrays(major="n"))).splitlines()
    assert lines[-1] == f"cannot: only_k: {only_k.obstacle(problem(major='n'))}"


def test_it_prints_what_was_measured(tables):
    tables(user=table_for(ASKED, GATED[-1].name, 5, 12.34))
    assert f"chosen: {GATED[-1].name} (measured: 12.3 us)" in str(explained(*arrays()))


def test_without_estimates_it_prints_no_table():
    text = str(explain(*arrays()))
    assert re.search(r"^chosen: numpy$", text, re.MULTILINE)
    assert "estimate" not in text


def test_it_prints_the_device_of_the_arrays(gpu):
    assert "on the CPU" in str(explain(*arrays()))
    assert "on NVIDIA H200" in str(explain(*map(on_device, arrays())))


def test_it_prints_the_device_that_was_asked_about():
    text = str(explained(*arrays()))
    assert H200.name in text
    assert "on the CPU" not in text
