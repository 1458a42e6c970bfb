"""From XLA's custom call to launches: the driver is the recorded fake, and so is XLA."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cuswiglu import ClampedSwiGLU
from cuswiglu.jax import launch
from cuswiglu.jax.launch import FusedCall
from cuswiglu.kernels.manifest import variants
from tests.helpers.compiled import GATED, PLAIN, entry_of
from tests.helpers.fake_driver import COEFFICIENTS, Result, coefficients, cuda, run_in_threads
from tests.helpers.host_arrays import poisoned
from tests.helpers.xla_frames import FakeXla

M, K, N, K_OUT = 300, 128, 192, 256
ALONG_N = [kernel for kernel in GATED if "n" in kernel.layouts]
SWIGLU = FusedCall(M, K, N, 0, "k", GATED[0].name, "")
MLP = dataclasses.replace(SWIGLU, k_out=K_OUT, down=PLAIN[0].name)


@pytest.fixture(autouse=True)
def _no_launches_kept():
    launch.launches.clear()
    yield
    launch.launches.clear()


def arrays_of(description):
    """Arguments, and results."""
    dtype = np.dtype(description.dtype)
    every = [poisoned(*shape, dtype=dtype) for _, shape in description.operands]
    count = 1 + len(description.arguments)
    return every[:count], every[count:]


def call(fake, description, arrays=None):
    return fake.call(
        launch.HANDLER, description.text().encode(), *(arrays or arrays_of(description))
    )


def test_swiglu_is_one_launch_on_xlas_stream_and_arrays(gpu):
    arguments, results = arrays_of(SWIGLU)
    assert call(FakeXla(stream=0xABC), SWIGLU, (arguments, results)) is None
    (launched,) = gpu.driver.launches
    assert launched.entry == entry_of(GATED[0])
    assert launched.stream == 0xABC
    assert list(launched.addresses) == [array.ctypes.data for array in (*arguments, *results)]
    assert launched.sizes == (M, N, K)


def test_mlp_is_two_launches_with_the_second_result_between_them(gpu):
    (x, gate, up, down), (out, hidden) = arguments, results = arrays_of(MLP)
    assert call(FakeXla(stream=0xABC), MLP, (arguments, results)) is None
    first, second = gpu.driver.launches
    assert (first.stream, second.stream) == (0xABC, 0xABC)
    lies = [array.ctypes.data for array in (x, gate, up, down, out, hidden)]
    assert list(first.addresses) == [*lies[:3], lies[5]]
    assert list(second.addresses) == [lies[5], lies[3], lies[3], lies[4]]
    assert second.entry == entry_of(PLAIN[0])
    assert second.sizes == (M, K_OUT, N)


def test_gate_and_up_start_behind_xlas_work_which_may_write_weights_and_down_beside_them(gpu):
    call(FakeXla(), MLP)
    first, second = gpu.driver.launches
    assert (first.overlapping, first.named["weights_ahead"]) == (False, 1)
    assert (second.overlapping, second.named["weights_ahead"]) == (True, 1)


def test_kernels_are_told_the_activation_and_where_biases_lie(gpu):
    clamped = {"activation": "clamped", "alpha": 0.5, "limit": float("inf")}
    made = dataclasses.replace(MLP, **clamped, biases=("b_up", "b_down"))
    (*_, b_up, b_down), _ = arrays = arrays_of(made)
    assert call(FakeXla(), made, arrays) is None
    first, second = gpu.driver.launches
    assert first.biases == (0, b_up.ctypes.data)
    assert second.biases == (b_down.ctypes.data, 0)
    told = {name: first.named[name] for name in COEFFICIENTS}
    assert told == coefficients(ClampedSwiGLU(0.5, float("inf")))
    assert second.named["activation"] == 0


def test_fp16_is_launched_and_the_arrays_must_be_of_it(gpu):
    made = dataclasses.replace(SWIGLU, dtype="float16")
    assert call(FakeXla(), made) is None
    assert gpu.driver.launches[0].entry == entry_of(GATED[0], "k", "float16")
    another = dataclasses.replace(made, m=M + 1)
    bf16 = arrays_of(dataclasses.replace(another, dtype="bfloat16"))
    assert "the call's arrays are" in call(FakeXla(), another, bf16)
    assert len(gpu.driver.launches) == 1


def test_a_bias_at_any_element_is_taken(gpu):
    made = dataclasses.replace(SWIGLU, biases=("b_gate",))
    arguments, results = arrays_of(made)
    arguments[-1] = poisoned(N, offset=1)
    assert call(FakeXla(), made, (arguments, results)) is None
    assert gpu.driver.launches[0].biases == (arguments[-1].ctypes.data, 0)


@pytest.mark.parametrize("layout", ["k", "n"] if ALONG_N else ["k"])
def test_descriptors_follow_the_layout_of_the_weights(gpu, layout):
    kernel = (ALONG_N if layout == "n" else GATED)[0]
    made = dataclasses.replace(SWIGLU, layout=layout, gate_up=kernel.name)
    assert call(FakeXla(), made) is None
    (launched,) = gpu.driver.launches
    assert launched.entry == entry_of(kernel, layout)
    assert launched.maps[1].extents == ((K, N) if layout == "k" else (N, K))


def test_a_second_call_launches_and_does_nothing_else(gpu):
    fake, arrays = FakeXla(), arrays_of(MLP)
    call(fake, MLP, arrays)
    gpu.driver.calls = []
    call(fake, MLP, arrays)
    assert [name for name, _ in gpu.driver.calls] == ["cuLaunchKernelEx"] * 2


def test_new_addresses_are_followed(gpu):
    fake = FakeXla()
    call(fake, SWIGLU)
    arguments, results = arrays_of(SWIGLU)
    call(fake, SWIGLU, (arguments, results))
    found = list(gpu.driver.launches[1].addresses)
    assert found == [array.ctypes.data for array in (*arguments, *results)]


def test_each_device_has_launches_of_its_own(gpu):
    for device in (0, 1, 0):
        gpu.driver.current_device = lambda device=device: device  # as XLA makes it
        assert call(FakeXla(device=device), SWIGLU) is None
    assert gpu.driver.told("cuDevicePrimaryCtxRetain") == [0, 1]
    assert gpu.driver.count("cuKernelGetFunction") == 2


def test_kernels_are_loaded_though_xla_may_be_capturing_a_graph(gpu):
    call(FakeXla(), SWIGLU)
    relaxed, before = gpu.driver.told("cuThreadExchangeStreamCaptureMode")
    assert relaxed == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    assert before == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    names = [name for name, _ in gpu.driver.calls]
    exchange = "cuThreadExchangeStreamCaptureMode"
    assert names.index(exchange) < names.index("cuLibraryLoadData")
    assert names.index("cuLibraryLoadData") < len(names) - names[::-1].index(exchange)


def test_threads_do_not_mix_their_arrays(gpu):
    fakes = [FakeXla(stream=stream) for stream in range(8)]
    arrays = [arrays_of(MLP) for _ in fakes]

    def work(number):
        for _ in range(20):
            assert call(fakes[number], MLP, arrays[number]) is None

    run_in_threads(work)
    for launched in gpu.driver.launches[::2]:
        (x, *_), _ = arrays[launched.stream]
        if launched.entry == entry_of(GATED[0]):
            assert launched.addresses[0] == x.ctypes.data
    assert len(gpu.driver.launches) == 8 * 20 * 2


def test_a_driver_error_is_xlas_error(gpu):
    gpu.driver.failing["cuLaunchKernelEx"] = Result.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    message = call(FakeXla(), SWIGLU)
    assert "DriverError: the CUDA driver failed at cuLaunchKernelEx" in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gate_up": "triple_of_another_version"}, "variant must be one of"),
        ({"k": 129}, "the call's arrays are"),
    ],
)
def test_a_call_that_does_not_fit_launches_nothing(gpu, changes, words):
    made = dataclasses.replace(SWIGLU, **changes)
    assert words in call(FakeXla(), made, arrays_of(SWIGLU))
    assert gpu.driver.launches == []


def test_an_unaligned_address_is_named(gpu):
    arguments, results = arrays_of(SWIGLU)
    arguments[1] = poisoned(N, K, offset=4)
    message = call(FakeXla(), SWIGLU, (arguments, results))
    assert "w_gate's address must be a multiple of 16 bytes" in message
    assert gpu.driver.launches == []


def test_a_description_is_read_as_it_was_written():
    assert FusedCall.parse(MLP.text().encode()) == MLP


def test_a_description_with_everything_is_read_as_it_was_written():
    made = dataclasses.replace(
        MLP, activation="clamped", alpha=1.702, limit=float("inf"), biases=("b_gate", "b_down")
    )
    assert FusedCall.parse(made.text().encode()) == made


def test_a_program_of_before_activations_and_biases_is_read():
    text = (
        f'{{"m": {M}, "k": {K}, "n": {N}, "k_out": {K_OUT}, "layout": "k", '
        f'"gate_up": "{MLP.gate_up}", "down": "{MLP.down}"}}'
    )
    assert FusedCall.parse(text.encode()) == MLP


def test_kernels_that_are_gone_since_a_program_was_serialised_are_selected_anew(gpu):
    text = (
        f'{{"m": {M}, "k": {K}, "n": {N}, "k_out": {K_OUT}, "layout": "k", '
        '"gate_up": "dual_cooperative_128x144_1x1", "down": "plain_cooperative_256x128_1x1"}'
    )
    made = FusedCall.parse(text.encode())
    arguments, results = arrays_of(made)
    assert FakeXla().call(launch.HANDLER, text.encode(), arguments, results) is None
    first, second = gpu.driver.launches
    for launched, family in ((first, "dual"), (second, "plain")):
        assert launched.entry in {entry_of(one) for one in variants() if one.family == family}
