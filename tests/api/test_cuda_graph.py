"""GatedMLP.capture, with graphs that are only remembered: see host_cupy.py."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from cuswiglu import CapturedMLP
from cuswiglu.api import gated_mlp
from cuswiglu.runtime.driver import DriverError
from tests.helpers.calls import K_OUT, K, M, good, layer_of
from tests.helpers.capsules import Producer
from tests.helpers.device_arrays import all_on_device, device_poisoned, on_device, on_host
from tests.helpers.fake_driver import Result, run_in_threads
from tests.helpers.host_arrays import full, poisoned

pytestmark = pytest.mark.usefixtures("any_evenness")


def layer_on(index=0):
    return layer_of(all_on_device("GatedMLP", index))


@pytest.fixture
def layer(gpu):
    return layer_on()


def device_full(value, index=0):
    return on_device(full(np.full((M, K), value)), index)


@pytest.fixture
def step(gpu, layer):
    """The layer captured for (M, K) arrays; what came before is forgotten."""
    captured = layer.capture(device_full(1))
    gpu.driver.calls, gpu.driver.launches, gpu.cupy.copies = [], [], []
    return captured


# What is captured


def test_a_captured_call_has_an_input_and_a_result_of_its_own(gpu, layer):
    x = device_full(1)
    captured = layer.capture(x)
    assert isinstance(captured, CapturedMLP)
    assert (captured.x.shape, captured.y.shape) == ((M, K), (M, K_OUT))
    assert captured.x.data.ptr != x.data.ptr
    np.testing.assert_array_equal(on_host(captured.x), on_host(x))


def test_leading_dimensions_are_kept(gpu, layer):
    captured = layer.capture(device_poisoned(2, 3, K))
    assert (captured.x.shape, captured.y.shape) == ((2, 3, K), (2, 3, K_OUT))


def test_an_x_of_any_strides_is_copied(gpu, layer):
    captured = layer.capture(device_poisoned(M, 3 * K)[:, :K])
    assert captured.x.strides == (2 * K, 2)


def test_the_call_runs_once_before_it_is_captured(gpu, layer):
    """Kernels are loaded outside of the capture, and y is that of x."""
    captured = layer.capture(device_full(1))
    first, second = gpu.driver.launches
    assert first.addresses[0] == captured.x.data.ptr
    assert second.addresses[3] == captured.y.data.ptr
    stream = first.stream
    assert gpu.cupy.events == [("wait", stream, gpu.cupy.CURRENT_STREAM), ("synchronize", stream)]
    assert [copied for *_, copied in gpu.cupy.copies] == [stream]


def test_replaying_launches_what_was_captured_and_nothing_else(gpu, step):
    assert step() is step.y
    assert gpu.driver.calls == []
    first, second = gpu.driver.launches
    assert first.addresses[0] == step.x.data.ptr
    assert second.addresses[0] == first.addresses[3]
    assert second.addresses[3] == step.y.data.ptr


# Replays


def test_a_new_x_is_copied_before_the_replay(gpu, step):
    x = device_full(2)
    assert step(x) is step.y
    np.testing.assert_array_equal(on_host(step.x), on_host(x))
    ((destination, source, stream),) = gpu.cupy.copies
    assert destination is step.x
    assert source is x
    assert stream == gpu.driver.launches[0].stream


def test_nothing_is_copied_without_a_new_x(gpu, step):
    step()
    step(step.x)
    assert gpu.cupy.copies == []
    assert len(gpu.driver.launches) == 4


@pytest.mark.parametrize("stream", [None, 77])
def test_replays_go_to_the_stream_on_the_device_that_was_captured(gpu, step, stream):
    with gpu.cupy.cuda.Device(1):
        step(device_full(2), stream=stream)
        assert gpu.cupy.device() == 1
    expected = gpu.cupy.CURRENT_STREAM if stream is None else stream
    assert [launch.stream for launch in gpu.driver.launches] == [expected] * 2
    assert gpu.cupy.copies[0][2] == expected


def test_an_array_of_another_library_is_copied(gpu, step):
    x = device_full(2)
    step(Producer(x))
    assert gpu.cupy.copies[0][1].data.ptr == x.data.ptr


REFUSED = {
    "shape": (
        lambda: device_poisoned(M + 1, K),
        ValueError,
        ["captured shape (4, 16)", "got (5, 16)", "capture the GatedMLP anew"],
    ),
    "rank": (
        lambda: device_poisoned(1, M, K),
        ValueError,
        ["captured shape (4, 16)", "got (1, 4, 16)"],
    ),
    "dtype": (
        lambda: on_device(np.zeros((M, K), np.float16)),
        TypeError,
        ["x must have the captured dtype bfloat16", "got float16"],
    ),
    "no dtype of ours": (
        lambda: on_device(np.zeros((M, K), np.float32)),
        TypeError,
        ["x must have dtype bfloat16", "got float32", "astype(ml_dtypes.bfloat16)"],
    ),
    "device": (
        lambda: device_full(2, index=1),
        ValueError,
        ["x must live where it was captured, on CUDA device 0", "on CUDA device 1"],
    ),
    "place": (lambda: poisoned(M, K), ValueError, ["on CUDA device 0", "on the CPU"]),
    "list": (lambda: [[1.0]], TypeError, ["x must be a NumPy or CuPy array", "got list"]),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_another_x_than_was_captured_is_refused_and_both_are_named(gpu, step, wrong):
    make, error, words = REFUSED[wrong]
    with pytest.raises(error) as caught:
        step(make())
    for word in words:
        assert word in str(caught.value)
    assert gpu.driver.launches == gpu.cupy.copies == []


def test_what_is_no_stream_is_refused(gpu, step):
    with pytest.raises(TypeError, match="stream must be"):
        step(device_full(2), stream="77")
    assert gpu.driver.launches == gpu.cupy.copies == []


def test_a_forked_child_is_refused(gpu, step, fork):
    fork()
    with pytest.raises(DriverError, match="'spawn'"):
        step()
    assert gpu.driver.launches == []


# What cannot be captured


def test_arrays_on_the_cpu_are_refused_with_the_way_out():
    arguments = good("GatedMLP")
    layer = layer_of(arguments)
    with pytest.raises(ValueError, match=r"x must live on a CUDA .* the CPU: call the GatedMLP"):
        layer.capture(arguments["x"])


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (lambda: device_poisoned(0, K), ValueError, r"x must have tokens .* got shape \(0, 16\)"),
        (lambda: device_poisoned(M, K + 8), ValueError, "x must have K = 16 columns"),
        (lambda: device_poisoned(M, K, index=1), ValueError, "x and w_gate must live on the same"),
        (lambda: on_device(np.zeros((M, K), np.float32)), TypeError, "x must have dtype bfloat16"),
    ],
    ids=["no tokens", "K", "device", "dtype"],
)
def test_a_wrong_x_is_refused_before_anything_is_launched(gpu, layer, x, error, words):
    with pytest.raises(error, match=words):
        layer.capture(x())
    assert gpu.driver.launches == gpu.cupy.events == []


def test_an_error_while_capturing_ends_the_capture(gpu, layer, monkeypatch):
    """And is the error that is raised."""
    streams = []
    begin = gpu.cupy.cuda.Stream.begin_capture

    def begin_and_break(stream):
        begin(stream)
        streams.append(stream)
        gpu.driver.failing["cuLaunchKernelEx"] = Result.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED

    monkeypatch.setattr(gpu.cupy.cuda.Stream, "begin_capture", begin_and_break)
    with pytest.raises(DriverError, match="STREAM_CAPTURE_INVALIDATED"):
        layer.capture(device_full(1))
    assert [stream.captured for stream in streams] == [None]


# What a graph uses lives as long as it does


def used(gpu):
    """Addresses of x, the intermediate and y in the launches of a replay."""
    first, second = gpu.driver.launches
    return first.addresses[0], first.addresses[3], second.addresses[3]


def states(gpu, addresses):
    gc.collect()
    return [gpu.cupy.state(address) for address in addresses]


def test_what_a_graph_uses_is_given_to_nobody_while_it_lives(gpu, step):
    step()
    addresses = used(gpu)
    assert len(set(addresses)) == 3
    assert states(gpu, addresses) == ["held"] * 3


def test_what_a_graph_used_goes_with_it(gpu, layer):
    step = layer.capture(device_full(1))
    gpu.driver.launches, gpu.cupy.copies = [], []
    step()
    addresses = used(gpu)
    del step
    assert states(gpu, addresses) == ["gone"] * 3


def test_a_result_outlives_the_graph_that_wrote_it(gpu, layer):
    step = layer.capture(device_full(1))
    y = step()
    del step
    assert states(gpu, [y.data.ptr]) == ["held"]


def test_a_workspace_of_the_portable_path_is_held_too(gpu, monkeypatch):
    """As cuBLAS's, which is allocated while the call is captured."""
    from cuswiglu.backends import cublas

    allocated = []

    def matmul(x, weight, out):
        allocated.append(gpu.cupy.empty((4096,), np.uint8).data.ptr)

    monkeypatch.setattr(cublas, "matmul", matmul)
    step = layer_of(all_on_device("GatedMLP"), variant="cublas").capture(device_full(1))
    _, captured = allocated
    assert states(gpu, [captured]) == ["held"]
    del step
    assert states(gpu, [captured]) == ["gone"]


def test_a_call_that_is_forgotten_takes_nothing_from_a_graph(gpu, monkeypatch):
    """The graph has copies of the arguments, and holds the memory that they point at."""
    monkeypatch.setattr(gated_mlp, "CACHED_CALLS", 1)
    layer = layer_on()
    step = layer.capture(device_full(1))
    gpu.driver.launches = []
    step()
    before = list(gpu.driver.launches)
    for m in (1, 2, 3):
        layer(device_poisoned(m, K))
    gpu.driver.launches = []
    step()
    assert gpu.driver.launches == before
    assert states(gpu, used(gpu)) == ["held"] * 3


def test_a_graph_holds_the_weights(gpu):
    layer = layer_on()
    watch = weakref.ref(layer)
    step = layer.capture(device_full(1))
    del layer
    gc.collect()
    assert watch() is step.mlp


def test_a_call_that_is_forgotten_while_threads_make_it_is_made_right(gpu, monkeypatch):
    """With room for one kind, each call pushes out the one that another thread has in hand."""
    monkeypatch.setattr(gated_mlp, "CACHED_CALLS", 1)
    layer = layer_on()
    xs = [device_poisoned(number + 1, K) for number in range(4)]
    outs = [device_poisoned(number + 1, K_OUT) for number in range(4)]

    def work(number):
        for _ in range(10):
            layer(xs[number], out=outs[number], stream=100 + number)

    run_in_threads(work, count=4)
    assert len(gpu.driver.launches) == 2 * 4 * 10
    for launch in gpu.driver.launches:
        number = launch.stream - 100
        assert launch.named["m"] == number + 1
        address = launch.maps[0 if "plain" not in launch.entry else 3].address
        assert address == (xs if "plain" not in launch.entry else outs)[number].data.ptr


def test_threads_replay_one_after_another(gpu, step):
    """An executable graph must not be launched by two threads at once."""
    xs = [device_full(number) for number in range(8)]
    run_in_threads(lambda number: step(xs[number]))
    assert len(gpu.cupy.copies) == 8
    assert len(gpu.driver.launches) == 16


def test_it_is_shown_with_its_shapes(gpu, step):
    assert repr(step).startswith(f"CapturedMLP(x ({M}, {K}), y ({M}, {K_OUT}), GatedMLP(")
