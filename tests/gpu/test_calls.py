"""Calls on a GPU: streams, graphs, the whole MLP, rows of any stride."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cuswiglu
from cuswiglu.testing import numerics
from tests.gpu.compare import assert_close, reference
from tests.gpu.replays import captured, same_bits
from tests.helpers.fake_driver import run_in_threads


def test_mlp_matches_fp64_on_every_backend(cupy, draw):
    x, gate, up = draw(300, 896, 1216)
    down = draw(1, 1216, 640)[1]
    expected = numerics.mlp_reference(cupy, x, gate, up, down)
    for variant in ("auto", "cublas", "dual"):
        found = cuswiglu.mlp(x, gate, up, down, variant=variant)
        result = numerics.compare(cupy, found, expected)
        assert result.relative_error < 2**-8
        assert result.within_ulp > 0.99


def test_leading_dimensions_are_kept(cupy, draw):
    x, gate, up = draw(24, 64, 96)
    found = cuswiglu.swiglu(x.reshape(2, 3, 4, 64), gate, up)
    assert found.shape == (2, 3, 4, 96)
    assert_close(cupy, found.reshape(24, 96), reference(cupy, x, gate, up))


def test_work_waits_for_what_is_before_it_on_the_stream(cupy, draw, arriving_late):
    x, gate, up = draw(512, 1024, 1024)
    late, stream = arriving_late(x)
    found = cuswiglu.swiglu(late, gate, up, stream=stream)
    stream.synchronize()
    assert_close(cupy, found, reference(cupy, x, gate, up))


@pytest.mark.parametrize("kind", ["object", "pointer"])
def test_a_stream_is_taken_as_object_or_pointer(cupy, draw, kind):
    x, gate, up = draw(64, 64, 64)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    found = cuswiglu.swiglu(x, gate, up, stream=stream if kind == "object" else stream.ptr)
    stream.synchronize()
    assert_close(cupy, found, reference(cupy, x, gate, up))


@pytest.mark.parametrize("variant", ["dual", "cublas"])
def test_mlp_is_captured_in_a_graph_and_replays_on_new_inputs(cupy, draw, variant):
    x, gate, up = draw(200, 512, 768)
    down = draw(1, 768, 512)[1]
    out = cuswiglu.mlp(x, gate, up, down, variant=variant)  # plans, loads
    graph, stream = captured(
        cupy, lambda: cuswiglu.mlp(x, gate, up, down, out=out, variant=variant)
    )
    fresh = draw(200, 512, 768)[0]
    x[...] = fresh
    out.fill(np.nan)
    cupy.cuda.runtime.deviceSynchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = numerics.mlp_reference(cupy, fresh, gate, up, down)
    assert numerics.compare(cupy, out, expected).relative_error < 2**-8


def test_threads_share_plans_without_mixing_their_arrays(cupy, draw):
    cases = [draw(96, 128, 160) for _ in range(4)]
    expected = [reference(cupy, *case) for case in cases]

    def work(number):
        case, wanted = cases[number % 4], expected[number % 4]
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(50):
                found = cuswiglu.swiglu(*case)
            stream.synchronize()
            assert_close(cupy, found, wanted)

    cupy.cuda.runtime.deviceSynchronize()
    run_in_threads(work)


@pytest.mark.usefixtures("no_plans")
def test_what_tma_cannot_load_takes_the_portable_path_and_says_so(cupy, draw):
    x, gate, up = draw(64, 72, 64)
    shifted = cupy.empty(64 * 72 + 1, x.dtype)[1:].reshape(64, 72)
    shifted[...] = x
    with pytest.warns(UserWarning, match="x's address"):
        found = cuswiglu.swiglu(shifted, gate, up)
    assert_close(cupy, found, reference(cupy, x, gate, up))


def test_gated_mlp_holds_device_weights(cupy, draw):
    x, gate, up = draw(40, 128, 256)
    down = draw(1, 256, 128)[1]
    layer = cuswiglu.GatedMLP(gate, up, down)
    expected = cuswiglu.mlp(x, gate, up, down)
    assert same_bits(cupy, layer(x), expected)
    assert layer(x[:0]).shape == (0, 128)
    assert layer(x[0]).dtype == ml_dtypes.bfloat16


def test_a_stack_of_layers_in_a_graph_keeps_its_order(cupy, draw):
    """Programmatic edges let kernels start early: each must still wait for the one ahead."""
    layers = []
    for _ in range(6):
        _, gate, up = draw(1, 256, 512)
        layers.append((gate, up, draw(1, 512, 256)[1]))
    x = draw(160, 256, 8)[0]
    mlps = [cuswiglu.GatedMLP(*layer) for layer in layers]
    buffers = [cupy.empty_like(x) for _ in range(7)]

    def stack():
        for mlp, source, target in zip(mlps, buffers, buffers[1:], strict=False):
            mlp(source, out=target)

    buffers[0][...] = x
    stack()
    expected = [buffer.copy() for buffer in buffers]
    graph, stream = captured(cupy, stack)
    with stream:
        for _ in range(20):
            for buffer in buffers[1:]:
                buffer.fill(np.nan)
            graph.launch(stream)
            stream.synchronize()
            for found, wanted in zip(buffers, expected, strict=True):
                assert same_bits(cupy, found, wanted)


def test_weights_written_just_ahead_are_read_new(cupy, draw):
    """The kernel that writes the weights is a foreign one, straight ahead on the stream."""
    x, gate, up = draw(256, 2048, 2048)
    expected = reference(cupy, x, gate, up)
    changing = cupy.zeros_like(gate.T)
    for _ in range(20):
        changing[...] = 0
        changing[...] = gate.T
        assert_close(cupy, cuswiglu.swiglu(x, changing.T, up), expected)


def test_host_and_device_arrays_do_not_mix(cupy, draw):
    x, gate, up = draw(8, 64, 64)
    with pytest.raises(ValueError, match="w_gate and w_up must live on the same device"):
        cuswiglu.swiglu(x, gate, cupy.asnumpy(up))
