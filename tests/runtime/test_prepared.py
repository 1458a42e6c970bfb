"""Calls after the first of their kind: what is looked at again, and whose kernels are launched."""

from __future__ import annotations

import numpy as np
import pytest

import cuswiglu
from cuswiglu.api import gated_mlp
from tests.helpers.calls import FUNCTIONS, K_OUT, K, M, N, call, layer_of, repeated
from tests.helpers.capsules import Producer
from tests.helpers.compiled import GATED, entry_of
from tests.helpers.device_arrays import all_on_device, device_poisoned, on_device, on_host
from tests.helpers.fake_driver import PLANS, run_in_threads
from tests.helpers.host_arrays import poisoned
from tests.helpers.problems import weight

pytestmark = pytest.mark.usefixtures("any_evenness")


@pytest.fixture(params=FUNCTIONS)
def again(request, gpu):
    """again(**changes): the call of a function that has been called before, with changes.

    again.width is of the result, again.launches how many kernels a call launches.
    """
    arguments = all_on_device(request.param)
    changed = repeated(request.param, arguments)
    changed()
    gpu.driver.calls, gpu.driver.launches = [], []
    changed.width = N if request.param == "swiglu" else K_OUT
    changed.launches = 1 if request.param == "swiglu" else 2
    changed.out = arguments["out"]
    return changed


def test_an_array_of_the_same_kind_needs_no_new_plan(gpu, again):
    x = device_poisoned(M, K)
    assert again(x=x) is again.out
    assert gpu.driver.count(PLANS) == 0
    assert len(gpu.driver.launches) == again.launches
    assert gpu.driver.launches[0].addresses[0] == x.data.ptr
    assert gpu.driver.launches[-1].addresses[3] == again.out.data.ptr


def test_a_new_result_is_what_the_last_kernel_writes(gpu, again):
    for _ in range(2):
        result = again(out=None)
        assert (result.shape, result.dtype.name, result.device.id) == (
            (M, again.width),
            "bfloat16",
            0,
        )
        assert gpu.driver.launches[-1].addresses[3] == result.data.ptr


OTHERS = {
    "more tokens": lambda: device_poisoned(M + 1, K),
    "no leading dimension": lambda: device_poisoned(K),
    "padded rows": lambda: device_poisoned(M, K + 8)[:, :K],
}


@pytest.mark.parametrize("other", OTHERS)
def test_an_array_of_another_kind_has_plans_of_its_own(gpu, again, other):
    x = OTHERS[other]()
    assert again(x=x, out=None).shape == (*x.shape[:-1], again.width)
    assert gpu.driver.count(PLANS) > 0
    launch = gpu.driver.launches[0]
    assert launch.maps[0].extents == (K, x.size // K)
    assert launch.maps[0].row_bytes == 2 * (K + 8 if other == "padded rows" else K)


def test_an_address_that_tma_cannot_load_is_seen_in_a_later_call(gpu, again):
    with pytest.warns(UserWarning, match="x's address is a multiple of 2 bytes only"):
        again(x=device_poisoned(M, K, offset=1))
    assert gpu.portable[0][0] == "swiglu"


REFUSED = {
    "dtype": ({"x": on_device(np.zeros((M, K), np.float32))}, TypeError, "x must have dtype"),
    "K": ({"x": device_poisoned(M, K + 8)}, ValueError, f"x must have K = {K} columns"),
    "device": ({"x": device_poisoned(M, K, index=1)}, ValueError, "x and w_gate must live on the"),
    "place": ({"x": poisoned(M, K)}, ValueError, "x and w_gate must live on the same device"),
    "out": ({"out": device_poisoned(M + 1, K)}, ValueError, "out must have shape"),
    "stream": ({"stream": "77"}, TypeError, "stream must be a cupy.cuda.Stream"),
    "list": ({"x": [[1.0]]}, TypeError, "x must be a NumPy or CuPy array"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_wrong_argument_is_refused_in_a_later_call_too(gpu, again, wrong):
    changes, error, words = REFUSED[wrong]
    with pytest.raises(error, match=words):
        again(**changes)
    assert gpu.driver.launches == []
    assert np.isnan(on_host(again.out)).all()


def test_an_out_that_comes_to_overlap_x_is_refused(gpu, again):
    memory = poisoned(M * (K + again.width))
    x, out = memory[: M * K].reshape(M, K), memory[M * K :].reshape(M, again.width)
    again(x=on_device(x), out=on_device(out))
    overlapping = memory[M * K - 8 : -8].reshape(M, again.width)
    before = len(gpu.driver.launches)
    with pytest.raises(ValueError, match="out must not overlap x"):
        again(x=on_device(x), out=on_device(overlapping))
    assert len(gpu.driver.launches) == before


def test_an_out_between_the_rows_of_x_is_taken_again(gpu, again):
    memory = poisoned(M, K + again.width)
    x, out = on_device(memory[:, :K]), on_device(memory[:, K:])
    for _ in range(2):
        assert again(x=x, out=out) is out


@pytest.mark.parametrize("stream", [None, 77])
def test_a_later_call_goes_to_the_stream_whatever_device_is_current(gpu, again, stream):
    with gpu.cupy.cuda.Device(1):
        again(stream=stream)
        assert gpu.cupy.device() == 1
    expected = gpu.cupy.CURRENT_STREAM if stream is None else stream
    assert {launch.stream for launch in gpu.driver.launches} == {expected}
    assert {launch.device for launch in gpu.driver.launches} == {0}


def test_an_array_of_another_library_needs_no_new_plan(gpu, again):
    x, out = Producer(device_poisoned(M, K)), Producer(again.out)
    assert again(x=x, out=out) is out
    assert gpu.driver.count(PLANS) == 0
    assert gpu.driver.launches[0].addresses[0] == x.array.data.ptr


@pytest.mark.parametrize("function", ["swiglu", "mlp"])
@pytest.mark.parametrize("argument", ["w_gate", "w_up", "w_down"])
def test_other_weights_of_the_same_kind_are_the_ones_that_are_read(gpu, function, argument):
    arguments = all_on_device(function)
    call(function, **arguments)
    arguments[argument] = all_on_device(function)[argument]
    gpu.driver.calls, gpu.driver.launches = [], []
    call(function, **arguments)
    assert gpu.driver.count(PLANS) == 0
    gate, up = (arguments[name].data.ptr for name in ("w_gate", "w_up"))
    first = gpu.driver.launches[0]
    assert [found.address for found in first.maps[1:3]] == [gate, up]
    if function == "mlp":
        assert gpu.driver.launches[1].addresses[1] == arguments["w_down"].data.ptr


@pytest.mark.parametrize("function", ["swiglu", "mlp"])
def test_a_weight_of_another_layout_has_a_plan_of_its_own(gpu, function):
    arguments = all_on_device(function)
    call(function, **arguments)
    arguments["w_up"] = on_device(poisoned(N, K + 8)[:, :K].T)
    call(function, **arguments)
    assert gpu.driver.launches[-2 if function == "mlp" else -1].maps[2].row_bytes == 2 * (K + 8)


def test_packed_weights_are_one_matrix_in_later_calls_too(gpu):
    from tests.helpers.compiled import PACKED

    packed = cuswiglu.PackedWeights(device_poisoned(2 * N, K), 8)
    x, kernel = device_poisoned(M, K), next(k for k in PACKED if "p8" in k.layouts)
    for _ in range(2):
        cuswiglu.swiglu(x, packed, variant=kernel.name)
        assert [found.address for found in gpu.driver.launches[-1].maps[1:3]] == [
            packed.array.data.ptr
        ] * 2
    assert gpu.driver.launches[0].maps[:3] == gpu.driver.launches[1].maps[:3]


def test_another_variant_has_a_plan_of_its_own(gpu):
    arguments = all_on_device("swiglu")
    for kernel in (*GATED[:2], *GATED[:2]):
        call("swiglu", **arguments, variant=kernel.name)
        assert gpu.driver.launches[-1].entry == entry_of(kernel)


@pytest.mark.filterwarnings("ignore:cuswiglu takes the portable path")
def test_a_down_projection_on_the_portable_path_gets_matrices_in_later_calls_too(gpu):
    arguments = all_on_device("mlp") | {
        "w_down": on_device(weight(N, K_OUT, "k", offset=1)),
        "out": None,
    }
    for _ in range(2):
        x = device_poisoned(2, 3, K)
        gpu.driver.launches, gpu.portable[:] = [], []
        result = call("mlp", **arguments | {"x": x}, stream=77)
        (launch,), ((product, (hidden, down, rows), stream),) = gpu.driver.launches, gpu.portable
        assert (product, stream, launch.stream) == ("matmul", 77, 77)
        assert (hidden.shape, launch.addresses[3]) == ((6, N), hidden.data.ptr)
        assert down is arguments["w_down"]
        assert (rows.shape, rows.data.ptr) == ((6, K_OUT), result.data.ptr)
        assert result.shape == (2, 3, K_OUT)


# Bounds and threads


def test_a_layer_keeps_the_kinds_used_most_recently(gpu, monkeypatch):
    monkeypatch.setattr(gated_mlp, "CACHED_CALLS", 2)
    arguments = all_on_device("GatedMLP")
    layer = layer_of(arguments)
    xs = [device_poisoned(m, K) for m in (1, 2, 3)]
    for x in xs:
        layer(x)
    before = gpu.driver.count("cuTensorMapEncodeTiled")
    layer(xs[0])  # was forgotten: its plans are packed anew
    weights = {arguments[name].data.ptr for name in ("w_gate", "w_up", "w_down")}
    anew = gpu.driver.told("cuTensorMapEncodeTiled")[before:]
    assert weights <= {record.address for record in anew}
    gpu.driver.calls = []
    layer(xs[0])
    layer(xs[2])
    assert weights.isdisjoint(r.address for r in gpu.driver.told("cuTensorMapEncodeTiled"))


def test_threads_share_a_layer_without_mixing_their_arrays(gpu):
    arguments = all_on_device("GatedMLP")
    layer = layer_of(arguments)
    xs = [device_poisoned(M, K) for _ in range(8)]
    outs = [device_poisoned(M, K_OUT) for _ in range(8)]

    def work(number):
        for _ in range(25):
            layer(xs[number], out=outs[number], stream=100 + number)

    run_in_threads(work, count=8)
    assert len(gpu.driver.launches) == 2 * 8 * 25
    for stream in range(8):
        own = [launch for launch in gpu.driver.launches if launch.stream == 100 + stream]
        for first, second in zip(own[::2], own[1::2], strict=True):
            assert first.addresses[0] == xs[stream].data.ptr
            assert second.addresses[0] == first.addresses[3]
            assert second.addresses[3] == outs[stream].data.ptr
