"""Plans: what a second call does again, the cache, threads, fork, and the way to a backend."""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings

import numpy as np
import pytest

import cuswiglu
from cuswiglu.common.device import Device
from cuswiglu.runtime import plan, tensor_map
from cuswiglu.runtime.driver import DriverError
from tests.helpers.calls import FUNCTIONS, call
from tests.helpers.capsules import Producer
from tests.helpers.compiled import (
    DECODE_GATED,
    GATED,
    MAJORS,
    name_of,
    pretend_compiled,
    with_layouts,
)
from tests.helpers.device_arrays import all_on_device, device_poisoned, on_device, on_host
from tests.helpers.fake_driver import Result, run_in_threads
from tests.helpers.problems import problem, weight

M, N, K = 64, 96, 128
FIRST, SECOND = GATED[:2]
OPERANDS = ["x", "w_gate", "w_up", "out"]
#: A kernel of tiles has a descriptor of every operand; a decode kernel stores without one.
DESCRIBED = [(FIRST, OPERANDS), (DECODE_GATED[0], OPERANDS[:3])]
BY_KIND = pytest.mark.parametrize(("kernel", "described"), DESCRIBED, ids=["tiles", "decode"])


def arrays_for(m=M, n=N, k=K, major="k", index=0):
    weights = (on_device(weight(k, n, major), index) for _ in range(2))
    values = device_poisoned(m, k, index=index), *weights, device_poisoned(m, n, index=index)
    return dict(zip(OPERANDS, values, strict=True))


def encoded(gpu):
    """Addresses of the descriptors encoded so far; forgets them."""
    told = gpu.driver.told("cuTensorMapEncodeTiled")
    gpu.driver.calls = []
    return [record.address for record in told]


# What a call does again


@BY_KIND
def test_a_first_call_encodes_the_operands(gpu, kernel, described):
    arrays = arrays_for()
    cuswiglu.swiglu(**arrays, variant=kernel.name)
    assert encoded(gpu) == [arrays[name].data.ptr for name in described]


@BY_KIND
def test_a_second_call_only_launches(gpu, kernel, described):
    arrays = arrays_for()
    cuswiglu.swiglu(**arrays, variant=kernel.name)
    gpu.driver.calls = []
    cuswiglu.swiglu(**arrays, variant=kernel.name)
    assert [name for name, _ in gpu.driver.calls] == ["cuLaunchKernelEx"]
    first, second = gpu.driver.launches
    assert first == second


@BY_KIND
@pytest.mark.parametrize("moved", [[name] for name in OPERANDS] + [["x", "out"]], ids="+".join)
def test_only_operands_at_other_addresses_are_encoded_again(gpu, moved, kernel, described):
    arrays, others = arrays_for(), arrays_for()
    cuswiglu.swiglu(**arrays, variant=kernel.name)
    encoded(gpu)
    arrays |= {name: others[name] for name in moved}
    cuswiglu.swiglu(**arrays, variant=kernel.name)
    assert encoded(gpu) == [others[name].data.ptr for name in moved if name in described]
    launched = list(gpu.driver.launches[-1].addresses)
    assert launched == [array.data.ptr for array in arrays.values()]


@BY_KIND
def test_an_address_that_comes_back_is_not_encoded_again(gpu, kernel, described):
    """As from a memory pool, which gives the same few by turns."""
    arrays, others = arrays_for(), arrays_for()
    for given in (arrays, others):
        cuswiglu.swiglu(**given, variant=kernel.name)
    encoded(gpu)
    cuswiglu.swiglu(**arrays, variant=kernel.name)
    assert encoded(gpu) == []
    launched = list(gpu.driver.launches[-1].addresses)
    assert launched == [array.data.ptr for array in arrays.values()]


def test_an_address_that_was_forgotten_is_encoded_again(gpu, monkeypatch):
    monkeypatch.setattr(tensor_map, "KEPT", 2)
    arrays, ups = arrays_for(), [arrays_for()["w_up"] for _ in range(3)]
    for up in [*ups, ups[2], ups[1], ups[0]]:
        encoded(gpu)
        cuswiglu.swiglu(**arrays | {"w_up": up})
        assert gpu.driver.launches[-1].addresses[2] == up.data.ptr
    assert encoded(gpu) == [ups[0].data.ptr]


@BY_KIND
@pytest.mark.parametrize("then", ["the same array", "the array before it"])
def test_a_call_after_a_failed_encoding_is_right_again(gpu, then, kernel, described):
    """Whatever the failure left of the descriptor."""
    arrays = arrays_for()
    call = functools.partial(cuswiglu.swiglu, variant=kernel.name)
    call(**arrays)
    before, arrays["w_up"] = arrays["w_up"], arrays_for()["w_up"]
    gpu.driver.failing["cuTensorMapEncodeTiled"] = Result.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DriverError, match="encoding a TMA descriptor"):
        call(**arrays)
    gpu.driver.failing.clear()
    encoded(gpu)
    if then == "the array before it":
        arrays["w_up"] = before
    call(**arrays)
    assert encoded(gpu) == ([] if arrays["w_up"] is before else [arrays["w_up"].data.ptr])
    launched = list(gpu.driver.launches[-1].addresses)
    assert launched == [array.data.ptr for array in arrays.values()]


@pytest.mark.parametrize("kernel", GATED, ids=name_of)
def test_both_layouts_of_a_variant_share_its_cubin(gpu, monkeypatch, kernel):
    pretend_compiled(monkeypatch, with_layouts(kernel, "k", "n"))
    for major in ("k", "n"):
        cuswiglu.swiglu(**arrays_for(major=major), variant=kernel.name)
    assert gpu.driver.count("cuLibraryLoadData") == 1
    assert gpu.driver.told("cuLibraryGetKernel") == [f"{kernel.name}_k", f"{kernel.name}_n"]


def test_two_devices_share_the_cubin_and_have_plans_of_their_own(gpu):
    for index in (0, 1, 0, 1):
        cuswiglu.swiglu(**arrays_for(index=index))
    assert gpu.driver.count("cuLibraryLoadData") == 1
    assert [device for _, device in gpu.driver.told("cuKernelGetFunction")] == [0, 1]
    assert [launch.device for launch in gpu.driver.launches] == [0, 1, 0, 1]
    assert gpu.driver.told("cuDeviceGetName") == [0, 1]


# The cache


@pytest.fixture
def choose(gpu):
    """plan.choose for a problem of m rows."""

    def make(m, name="auto"):
        on_gpu = dataclasses.replace(problem(m=m), device=Device("cuda", 0))
        return plan.choose(on_gpu, name)

    return make


def test_equal_problems_share_a_choice(choose):
    assert choose(8) is choose(8)


def test_other_problems_and_other_names_have_other_choices(choose):
    choices = [choose(8), choose(9), choose(8, FIRST.name), choose(8, SECOND.name)]
    assert len({id(found) for found in choices}) == 4


def test_the_cache_is_bounded(choose):
    first = choose(1)
    for m in range(2, plan.CACHED_CHOICES + 1):
        choose(m)
    assert choose(1) is first  # and is the most recently used now
    choose(plan.CACHED_CHOICES + 1)
    assert choose(1) is first
    for m in range(2, plan.CACHED_CHOICES + 2):
        choose(m)
    assert choose(1) is not first


def test_a_plan_is_its_makers_own(gpu):
    """Whoever points it at other arrays disturbs nobody."""
    with gpu.cupy.cuda.Device(0):
        asked = dataclasses.replace(problem(), device=Device("cuda", 0))
        assert plan.plan_for(asked) is not plan.plan_for(asked)


# Threads and processes


@BY_KIND
def test_threads_share_a_plan_without_mixing_their_arrays(gpu, kernel, described):
    """A launch reads the descriptors of its own thread's arrays, whoever encoded last."""
    sets = [arrays_for() for _ in range(8)]

    def work(number):
        for _ in range(25):
            cuswiglu.swiglu(**sets[number], variant=kernel.name, stream=100 + number)

    run_in_threads(work, count=8)
    assert len(gpu.driver.launches) == 8 * 25
    for launch in gpu.driver.launches:
        own = [array.data.ptr for array in sets[launch.stream - 100].values()]
        assert list(launch.addresses) == own


def test_threads_load_each_cubin_once(gpu, monkeypatch):
    kernels = pretend_compiled(monkeypatch, *(with_layouts(k, "k", "n") for k in (FIRST, SECOND)))

    def work(number):
        for major in ("k", "n"):
            name = kernels[number % 2].name
            cuswiglu.swiglu(**arrays_for(m=8 + number, major=major), variant=name)

    run_in_threads(work, count=8)
    assert gpu.driver.count("cuInit") == 1
    assert gpu.driver.count("cuLibraryLoadData") == 2
    assert sorted(gpu.driver.told("cuLibraryGetKernel")) == sorted(
        f"{kernel.name}_{major}" for kernel in kernels for major in ("k", "n")
    )


@pytest.mark.parametrize("m", [M, M + 1], ids=["with a cached plan", "with a new plan"])
def test_a_forked_child_is_refused(gpu, fork, m):
    cuswiglu.swiglu(**arrays_for())
    fork()
    with pytest.raises(DriverError, match=r"before this process was forked.*'spawn'"):
        cuswiglu.swiglu(**arrays_for(m=m))
    assert len(gpu.driver.launches) == 1


# The way to a backend


def test_another_gpu_takes_the_portable_path_with_the_arrays_as_they_are(gpu):
    gpu.driver.capability, gpu.driver.name = (8, 0), b"NVIDIA A100"
    arrays = arrays_for()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cuswiglu.swiglu(**arrays, stream=77) is arrays["out"]
    ((function, operands, stream),) = gpu.portable
    assert (function, stream) == ("swiglu", 77)
    assert [array.data.ptr for array in operands] == [a.data.ptr for a in arrays.values()]
    assert gpu.driver.count("cuLibraryLoadData") == 0


def test_what_tma_cannot_express_takes_the_portable_path_and_warns_the_caller(gpu):
    arrays = arrays_for() | {"x": device_poisoned(M, K, offset=1)}
    with pytest.warns(UserWarning, match="x's address is a multiple of 2 bytes only") as record:
        cuswiglu.swiglu(**arrays)
    assert [os.path.basename(warning.filename) for warning in record] == ["test_plans.py"]
    assert [function for function, _, _ in gpu.portable] == ["swiglu"]
    assert gpu.driver.launches == []


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("variant", "x", "words"),
    [
        ("dual", {"offset": 1}, "'dual' cannot compute this problem: x's address"),
        ("dual", {"pad": 4}, "'dual' cannot compute this problem: x's row stride"),
        ("numpy", {}, "'numpy' needs arrays on the CPU, got arrays on a CUDA device"),
        ("duel", {}, "variant must be one of auto, numpy, cublas, dual"),
    ],
    ids=["address", "stride", "reference", "unknown"],
)
def test_a_variant_that_cannot_run_is_refused_before_any_launch(gpu, function, variant, x, words):
    arguments = all_on_device(function)
    arguments["x"] = device_poisoned(4, 16 + x.get("pad", 0), offset=x.get("offset", 0))[:, :16]
    with pytest.raises(ValueError, match=words):
        call(function, **arguments, variant=variant)
    assert gpu.driver.launches == gpu.portable == []
    assert np.isnan(on_host(arguments["out"])).all()


def test_an_explicit_kernel_on_another_gpu_is_refused_before_any_launch(gpu):
    gpu.driver.capability, gpu.driver.name = (8, 0), b"NVIDIA A100"
    with pytest.raises(ValueError, match=r"needs a Hopper GPU .* got NVIDIA A100 \(8\.0\)"):
        cuswiglu.swiglu(**arrays_for(), variant="dual")
    assert gpu.driver.launches == gpu.portable == []


@pytest.mark.parametrize("major", MAJORS)
def test_dlpack_arrays_on_a_device_are_used_where_they_lie(gpu, major):
    arrays = arrays_for(major=major)
    given = {name: Producer(array) for name, array in arrays.items()}
    assert cuswiglu.swiglu(**given) is given["out"]
    launched = list(gpu.driver.launches[0].addresses)
    assert launched == [array.data.ptr for array in arrays.values()]
