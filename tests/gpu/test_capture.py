"""Captured calls on a GPU: the same bits as direct ones, whatever the memory pool is used for."""

from __future__ import annotations

import pytest

import cuswiglu
from tests.gpu.replays import poison, same_bits
from tests.helpers.fake_driver import run_in_threads

VARIANTS = ["auto", "dual", "cublas"]
SIZES = [1, 16, 200]
K, N = 896, 1216


@pytest.fixture
def layer(draw):
    """layer(variant): the same weights for each."""
    _, gate, up = draw(1, K, N)
    down = draw(1, N, K)[1]
    return lambda variant="auto": cuswiglu.GatedMLP(gate, up, down, variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("m", SIZES)
def test_a_replay_gives_the_bits_of_the_call(cupy, draw, layer, m, variant):
    mlp = layer(variant)
    x = draw(m, K, 8)[0]
    expected = mlp(x)
    step = mlp.capture(x)
    assert same_bits(cupy, step.y, expected)
    poison(step.y)
    assert same_bits(cupy, step(), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_replay_reads_the_new_x(cupy, draw, layer, variant):
    mlp = layer(variant)
    step = mlp.capture(draw(16, K, 8)[0])
    for _ in range(20):
        x = draw(16, K, 8)[0]
        poison(step.y)
        assert same_bits(cupy, step(x), mlp(x))
    step.x[...] = x = draw(16, K, 8)[0]
    poison(step.y)
    assert same_bits(cupy, step(), mlp(x))


def test_an_x_with_padded_rows_is_read_too(cupy, draw, layer):
    mlp = layer()
    x = draw(16, 2 * K, 8)[0][:, :K]
    step = mlp.capture(x)
    assert same_bits(cupy, step(x), mlp(x))


@pytest.mark.parametrize("variant", VARIANTS)
def test_use_of_the_memory_pool_does_not_change_replays(cupy, draw, layer, variant):
    """Whatever the pool gives out between capture and replay is not the graph's."""
    mlp = layer(variant)
    x = draw(16, K, 8)[0]
    expected = mlp(x)
    step = mlp.capture(x)
    pool = cupy.get_default_memory_pool()
    for turn in range(10):
        churn = [cupy.full(size, 0xFF, cupy.uint8) for size in range(512, 1 << 18, 4096)]
        poison(step.y)
        step()
        for block in churn:
            block.fill(0xFF)
        assert same_bits(cupy, step.y, expected), turn
        assert all(bool((block == 0xFF).all()) for block in churn), turn
        del churn
        pool.free_all_blocks()


def test_forgotten_calls_do_not_change_replays(cupy, draw, layer, monkeypatch):
    from cuswiglu.api import gated_mlp

    monkeypatch.setattr(gated_mlp, "CACHED_CALLS", 1)
    mlp = layer()
    x = draw(16, K, 8)[0]
    step = mlp.capture(x)
    expected = step.y.copy()
    for m in range(1, 12):
        mlp(draw(m, K, 8)[0])
        poison(step.y)
        assert same_bits(cupy, step(), expected)


def test_a_replay_waits_for_what_is_before_it_on_the_stream(cupy, draw, layer, arriving_late):
    mlp = layer()
    x = draw(16, K, 8)[0]
    expected = mlp(x)
    step = mlp.capture(cupy.zeros_like(x))
    late, stream = arriving_late(x)
    step(late, stream=stream)
    stream.synchronize()
    assert same_bits(cupy, step.y, expected)


def test_a_graph_that_is_dropped_while_it_runs_does_no_harm(cupy, draw, layer):
    mlp = layer()
    x = draw(16, K, 8)[0]
    expected = mlp(x)
    for _ in range(20):
        step = mlp.capture(x)
        poison(step.y)
        for _ in range(50):
            y = step(x)
        del step
        blocks = [cupy.zeros(1 << 16, cupy.uint8) for _ in range(20)]
        assert same_bits(cupy, y, expected)
        assert not any(bool(block.any()) for block in blocks)


def test_threads_on_streams_of_their_own_get_the_bits_of_one(cupy, draw, layer):
    """Eight threads and eight streams call one GatedMLP, with new results and given ones."""
    mlp = layer()
    xs = [draw(m, K, 8)[0] for m in (1, 2, 3, 16, 16, 16, 64, 200)]
    expected = [mlp(x) for x in xs]

    def wrong(number):
        """Turns whose bits differ."""
        turns, out = [], cupy.empty_like(expected[number])
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for turn in range(200):
                poison(out)
                found = mlp(xs[number]) if turn % 2 else mlp(xs[number], out=out)
                if not same_bits(cupy, found, expected[number]):
                    turns.append(turn)
            stream.synchronize()
        return turns

    cupy.cuda.runtime.deviceSynchronize()
    assert run_in_threads(wrong) == [[]] * 8


def test_a_call_again_and_again_gives_the_same_bits(cupy, draw, layer):
    mlp = layer()
    x = draw(16, K, 8)[0]
    expected = mlp(x)
    for _ in range(1000):
        assert same_bits(cupy, mlp(x), expected)


def test_a_stream_that_is_given_owns_the_intermediate(cupy, draw, layer):
    """Two streams in flight at once, from one thread: neither writes what the other reads."""
    mlp = layer()
    xs = [draw(200, K, 8)[0] for _ in range(2)]
    expected = [mlp(x) for x in xs]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in xs]
    cupy.cuda.runtime.deviceSynchronize()
    for _ in range(50):
        found = [mlp(x, stream=stream) for x, stream in zip(xs, streams, strict=True)]
        for stream in streams:
            stream.synchronize()
        for one, wanted in zip(found, expected, strict=True):
            assert same_bits(cupy, one, wanted)
