"""The tuned table that comes with the package: of an H200, and of kernels that are there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cuswiglu import variants
from cuswiglu.kernels.decode import DecodeVariant
from cuswiglu.selection import tuned
from cuswiglu.selection.tuned import Key
from tests.helpers.problems import plain_problem, problem

PATH = Path(tuned.__file__).parent / "tuned_h200.json"
KERNELS = {kernel.name: kernel for kernel in variants()}


@pytest.fixture(scope="module")
def packaged():
    if not PATH.exists():
        pytest.skip(f"{PATH.name} is made by `cuswiglu tune` on an H200, and is not there")
    return tuned.parse(PATH.read_text())


def test_it_is_where_the_package_looks_for_it_and_is_read_without_a_warning(packaged, recwarn):
    assert tuned.read(PATH) == packaged
    assert packaged.gpu == "NVIDIA H200"
    assert list(recwarn) == []


def test_it_is_as_it_would_be_written(packaged):
    assert PATH.read_text() == tuned.serialise(packaged)


def test_it_names_kernels_that_are_there_and_of_the_right_kind(packaged):
    for key, entry in packaged.choices.items():
        if entry.variant == "cublas":
            continue
        kernel = KERNELS[entry.variant]
        assert kernel.gated == key.gated, (key, entry)
        assert key.layout in kernel.layouts, (key, entry)


def test_its_keys_are_what_problems_are_looked_up_by(packaged):
    assert packaged.choices
    assert all(Key.of(key) == key for key in packaged.choices)


def test_its_decode_kernels_have_splits_that_can_be_launched_and_the_others_none(packaged):
    for key, entry in packaged.choices.items():
        kernel = KERNELS.get(entry.variant)
        if not isinstance(kernel, DecodeVariant):
            assert entry.split is None, (key, entry)
            continue
        of_kind = problem if key.gated else plain_problem
        asked = dataclasses.replace(of_kind(major=key.layout), m=key.m, n=key.n, k=key.k)
        assert entry.split is not None, (key, entry)
        assert kernel.tiling(asked, entry.split) is not None, (key, entry)


def test_its_rates_are_of_kernels_that_are_there_and_of_some_time(packaged):
    assert set(packaged.rates) <= set(KERNELS)
    assert all(rate.step_us > 0 and rate.tile_us >= 0 for rate in packaged.rates.values())
