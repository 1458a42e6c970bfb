"""Memory of calls: where the intermediate lies, and when memory is used again."""

from __future__ import annotations

import gc

import pytest

from cuswiglu.runtime import prepared
from tests.helpers.calls import K_OUT, K, M, N, call, layer_of
from tests.helpers.device_arrays import all_on_device, device_poisoned

pytestmark = pytest.mark.usefixtures("any_evenness")


@pytest.fixture
def allocated(gpu):
    """Sizes of the allocations that are no arrays."""
    sizes, allocate = [], gpu.cupy.cuda.alloc
    gpu.cupy.cuda.alloc = lambda size: sizes.append(size) or allocate(size)
    return sizes


@pytest.mark.parametrize("given", [False, True], ids=["new result", "out given"])
@pytest.mark.parametrize("joined", [False, True], ids=["large", "small"])
def test_the_intermediate_lies_apart_from_the_result(gpu, allocated, monkeypatch, joined, given):
    monkeypatch.setattr(prepared, "JOINED_BYTES", 2 * M * N if joined else 2 * M * N - 1)
    arguments = all_on_device("mlp")
    out = arguments.pop("out")
    result = call("mlp", **arguments, out=out if given else None)
    hidden = gpu.driver.launches[0].addresses[3]
    assert gpu.driver.launches[1].addresses[0] == hidden
    assert hidden % 16 == 0
    address, size = result.data.ptr, 2 * M * K_OUT
    assert hidden + 2 * M * N <= address or address + size <= hidden
    if joined and not given:
        assert allocated == [hidden - address + 2 * M * N]
    else:
        assert allocated == [2 * M * N]


@pytest.fixture
def again(gpu, allocated):
    """again(): the address of the result of another call of one layer; `.layer` is called."""
    layer = layer_of(all_on_device("GatedMLP"))
    x = device_poisoned(M, K)

    def call():
        return layer(x)

    with gpu.cupy.cuda.Device(0):
        call()
        yield call


def test_the_memory_of_a_result_that_is_gone_is_used_again(allocated, again):
    first = again().data.ptr
    assert again().data.ptr == first
    assert len(allocated) == 1


@pytest.mark.parametrize(
    "holder",
    [
        lambda result: result,
        lambda result: result.data,
        lambda result: result[1:].data,
        lambda result: result.reshape(-1),
        lambda result: result.data.mem,
        lambda result: (result.data + 16).mem,
    ],
    ids=["result", "pointer", "view's pointer", "view", "memory", "moved pointer's memory"],
)
def test_memory_that_somebody_holds_is_not_used_again(allocated, again, holder):
    held = holder(again())
    again()
    assert len(allocated) == 2
    del held
    again()
    assert len(allocated) == 2


def test_memory_is_not_used_again_on_another_stream(gpu, allocated, again):
    with gpu.cupy.cuda.Stream(99):
        again()
        assert len(allocated) == 2
    again()
    assert len(allocated) == 3


def test_memory_is_not_used_again_on_threads_own_default_streams(gpu, allocated, again):
    """All threads have the same handle of theirs, 2, and no order between them."""
    with gpu.cupy.cuda.Stream(2):
        for number in range(3):
            again()
            assert len(allocated) == 2 + number


def test_memory_is_not_used_again_under_another_allocator(gpu, again):
    pool = gpu.cupy.cuda.MemoryPool()
    with gpu.cupy.cuda.using_allocator(pool.malloc):
        second = again()
    assert gpu.cupy.state(second.data.ptr) == "held"


def test_memory_goes_with_the_layer(gpu):
    layer = layer_of(all_on_device("GatedMLP"))
    pool = gpu.cupy.cuda.MemoryPool()
    with gpu.cupy.cuda.using_allocator(pool.malloc):
        address = layer(device_poisoned(M, K)).data.ptr
    assert gpu.cupy.state(address) == "held"
    gc.disable()
    try:
        del layer
        assert gpu.cupy.state(address) == "free"
    finally:
        gc.enable()
