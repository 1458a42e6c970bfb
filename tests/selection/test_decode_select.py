"""Selection of decode kernels: for which M, by tuned splits, explained, and alike for any M."""

from __future__ import annotations

import dataclasses
import json
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cuswiglu
from cuswiglu import GatedMLP, explain
from cuswiglu.autotune import Tried, best
from cuswiglu.common.device import DeviceInfo
from cuswiglu.kernels import decode
from cuswiglu.kernels.decode import DecodeVariant
from cuswiglu.kernels.manifest import variants
from cuswiglu.kernels.split import Split
from cuswiglu.selection import select, tuned
from cuswiglu.selection.select import BATCH, prune
from cuswiglu.selection.tuned import Shape
from tests.helpers.calls import K_OUT, K, N, layer_of
from tests.helpers.compiled import (
    DECODE,
    DECODE_GATED,
    DECODE_PLAIN,
    GATED,
    PLAIN,
    SWAPPED_GATED,
    SWAPPED_PLAIN,
    entry_of,
    name_of,
)
from tests.helpers.device_arrays import all_on_device, device_poisoned, on_device
from tests.helpers.fake_driver import arguments_of
from tests.helpers.host_arrays import draw, poisoned
from tests.helpers.problems import packed_problem, plain_problem, problem, weight
from tests.helpers.tables import H200, table, table_for

SMALL = (4864, 896)  # N and K of gate and up of Qwen-2.5-0.5b
LARGE = (18944, 3584)  # and of 7b
A100 = DeviceInfo("NVIDIA A100", (8, 0), 108)
BY_SIZE = pytest.mark.parametrize(("n", "k"), [SMALL, LARGE])
GATED_16 = next(kernel for kernel in DECODE_GATED if kernel.tokens == 16)
SPLIT = Split(24, 1, 2)


def gate_up(m, n=4864, k=896, major="k"):
    return dataclasses.replace(problem(major=major), m=m, n=n, k=k)


def down(m, n=896, k=4864, major="k"):
    return dataclasses.replace(plain_problem(major=major), m=m, n=n, k=k)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# Which kernel


@BY_SIZE
@pytest.mark.parametrize("m", [1, 8, 16, 17])
@pytest.mark.parametrize("make", [gate_up, down])
def test_few_tokens_take_the_decode_kernel_that_holds_them(make, m, n, k):
    asked = make(m, n, k) if make is gate_up else make(m, k, n)
    choice = select.select(asked, H200)
    assert choice.kernel == decode.smallest_fitting(
        DECODE_GATED if make is gate_up else DECODE_PLAIN, m
    )
    assert choice.split == choice.kernel.ranked(asked, H200.multiprocessors)[0][1]
    assert choice.reason.startswith("estimated: ")


@pytest.mark.parametrize("make", [gate_up, down])
def test_64_tokens_of_a_small_model_take_a_decode_kernel(make):
    choice = select.select(make(64), H200)
    assert (choice.kernel.tokens, choice.kernel.gated) == (64, make is gate_up)
    assert choice.split is not None


@BY_SIZE
@pytest.mark.parametrize("m", [257, 512, 4096])
def test_many_tokens_take_a_kernel_of_tiles(m, n, k):
    choice = select.select(gate_up(m, n, k), H200)
    assert (choice.kernel in [*GATED, *SWAPPED_GATED], choice.split) == (True, None)


@pytest.mark.usefixtures("any_evenness")
def test_many_tokens_of_a_down_projection_take_a_kernel_of_tiles():
    choice = select.select(down(4096, 8192, 29568), H200)
    assert (choice.kernel in [*PLAIN, *SWAPPED_PLAIN], choice.split) == (True, None)


@pytest.mark.parametrize(("make", "most"), [(gate_up, 128), (down, 128)])
def test_decode_kernels_are_considered_up_to_a_number_of_tokens(make, most):
    able = [kernel for kernel in variants() if kernel.obstacle(make(1)) is None]
    for m in (1, most):
        found = prune(make(m), able)
        (only,) = (kernel for kernel in found if isinstance(kernel, DecodeVariant))
        assert only.tokens == min(128, 8 if m == 1 else m)
    assert not any(isinstance(kernel, DecodeVariant) for kernel in prune(make(most + 1), able))


def test_where_there_is_no_other_kernel_they_take_any_number_of_tokens():
    choice = select.select(gate_up(5000), H200, "auto", DECODE)
    assert choice.kernel.tokens == 128


@pytest.mark.parametrize("kernel", DECODE, ids=name_of)
@pytest.mark.parametrize("m", [1, 64, 1000])
def test_a_decode_kernel_that_is_named_runs_for_any_number_of_tokens(kernel, m):
    asked = gate_up(m) if kernel.gated else down(m)
    choice = select.select(asked, H200, kernel.name)
    assert choice.kernel == kernel
    assert kernel.tiling(asked, choice.split) is not None


@pytest.mark.parametrize("m", [1, 64, 5000])
def test_the_family_takes_the_kernel_for_so_many_tokens(m):
    found = select.select(gate_up(m), H200, "decode").kernel
    assert found == decode.smallest_fitting(DECODE_GATED, m)


def test_packed_weights_pass_over_decode_kernels():
    choice = select.select(packed_problem(m=4, n=96, k=128), H200)
    assert choice.kernel.family == "interleave"


@pytest.mark.parametrize("m", [1, 16, 64])
def test_few_tokens_of_a_down_projection_do_not_go_to_cublas_which_splits_k(m):
    """The decode kernel splits it too."""
    choice = select.select(down(m), H200)
    assert choice.kernel in DECODE_PLAIN
    assert choice.split.ranks > 1


def test_an_estimate_of_a_decode_kernel_is_of_its_best_split():
    asked = gate_up(16)
    found = GATED_16.estimate(asked, H200.multiprocessors, {})
    us, split = GATED_16.ranked(asked, H200.multiprocessors)[0]
    assert (found.us, found.split) == (us, split)
    assert found.tiles == GATED_16.tiling(asked, split).items
    assert 0 < found.evenness <= 1


# Tuned tables


@pytest.mark.parametrize("m", [9, 16])
def test_a_measured_split_comes_before_an_estimated_one(tables, m):
    tables(user=table_for(gate_up(16), GATED_16.name, 1, 5.5, SPLIT))
    choice = select.select(gate_up(m), H200)
    assert (choice.kernel, choice.split, choice.reason) == (GATED_16, SPLIT, "measured: 5.5 us")


def test_a_table_with_splits_is_read_as_it_was_written(tables):
    choices = {
        tuned.Key.of(gate_up(m)): tuned.Entry(kernel.name, 1, 5.5, Split(rows, 1, ctas))
        for (m, rows, ctas), kernel in zip([(8, 1, 2), (16, 128, 1)], DECODE_GATED, strict=False)
    } | {tuned.Key.of(gate_up(4096)): tuned.Entry(GATED[0].name, 16, 99.5)}
    written = table(choices)
    assert tuned.parse(tuned.serialise(written)) == written
    tables(user=written)
    assert tuned.tables()[0] == written


def test_a_kernel_of_tiles_is_written_without_a_split():
    text = tuned.serialise(table_for(gate_up(4096), GATED[0].name))
    assert '"split"' not in text


@pytest.mark.parametrize(
    "split",
    [None, Split(0, 1, 1), Split(129, 1, 1), Split(24, 4, 1), Split(24, 3, 1), Split(24, 1, 3)],
    ids=str,
)
def test_a_measured_split_that_cannot_be_launched_is_passed_over(tables, split):
    before = select.select(gate_up(16), H200)
    tables(user=table_for(gate_up(16), GATED_16.name, 1, 5.5, split))
    assert select.select(gate_up(16), H200) == before


def test_a_split_of_a_kernel_of_tiles_is_passed_over(tables):
    before = select.select(gate_up(4096), H200)
    tables(user=table_for(gate_up(4096), GATED[0].name, 16, 5.5, SPLIT))
    assert select.select(gate_up(4096), H200) == before


@pytest.mark.parametrize("split", [None, 24, [24, 1], [24, 1, 2, 1], ["rows", 1, 2], {"rows": 24}])
def test_a_damaged_split_is_a_damaged_table(split):
    content = json.loads(tuned.serialise(table_for(gate_up(16), GATED_16.name, 1, 5.5, SPLIT)))
    content["choices"][0]["split"] = split
    with pytest.raises(ValueError, match=r"."):
        tuned.parse(json.dumps(content))


def test_the_fastest_of_measured_splits_is_kept():
    times = {Tried(GATED_16.name, 1, SPLIT): 5.456, Tried(GATED_16.name, 1, Split(8, 1, 1)): 6.0}
    key, entry = best(Shape(16, *SMALL), times)
    assert key == tuned.Key.of(gate_up(16))
    assert entry == tuned.Entry(GATED_16.name, 1, 5.46, SPLIT)


def test_a_call_launches_the_measured_split(gpu, tables):
    asked = problem(m=16, n=200, k=136)
    tables(user=table_for(asked, GATED_16.name, 1, 5.5, SPLIT))
    weights = [on_device(weight(136, 200, "k")) for _ in range(2)]
    for _ in range(2):
        cuswiglu.swiglu(device_poisoned(16, 136), *weights)
        launch = gpu.driver.launches[-1]
        assert launch.entry == entry_of(GATED_16)
        assert launch.named["rows"] == SPLIT.rows
    numbers = {"int32", "int64", "float32"}
    asked = {name for name, kind in arguments_of(launch.entry) if kind in numbers}
    assert set(launch.named) == asked


# Explanations


def explained(m, n=200, k=1032):
    return explain(poisoned(m, k), weight(k, n, "k"), weight(k, n, "k"), device=H200)


def test_a_decode_kernel_is_explained_with_its_estimate():
    found = explained(16)
    assert found.choice == select.select(gate_up(16, 200, 1032), H200)
    (mine,) = (one for one in found.estimates if one.kernel == found.choice.kernel)
    assert mine.split == found.choice.split
    lines = str(found).splitlines()
    chosen = f"chosen: {GATED_16.name} (estimated: {mine.us:.1f} us in 1.00 waves)"
    assert lines[1] == f"{chosen}, tiles of 8 rows of the weights"
    (line,) = (line for line in lines[2:] if line.endswith(f" {GATED_16.name}"))
    assert line.split()[:2] == [f"{mine.us:.1f}", "us"]


def test_a_measured_split_is_explained(tables):
    tables(user=table_for(gate_up(16, 200, 1032), GATED_16.name, 1, 5.5, SPLIT))
    found = explained(16)
    assert found.measured.split == found.choice.split == SPLIT
    assert f"chosen: {GATED_16.name} (measured: 5.5 us)" in str(found)


# The same sums for any M

EIGHTS = st.integers(1, 5000).map(lambda count: 8 * count)
SAME = 'deterministic="batch"'


@given(st.integers(1, 5000), EIGHTS, EIGHTS, st.sampled_from("kn"), st.booleans())
def test_tiles_and_parts_of_k_are_the_same_for_any_m(m, n, k, major, gated):
    """And so each element's sums are added in one order."""
    make = gate_up if gated else down
    one, some = (select.select(make(count, n, k, major), H200, BATCH) for count in (1, m))
    assert (one.split.rows, one.split.ranks) == (some.split.rows, some.split.ranks)
    assert some.kernel.tiling(make(m, n, k, major), some.split) is not None
    assert some.kernel == decode.smallest_fitting(DECODE_GATED if gated else DECODE_PLAIN, m)


def test_a_table_does_not_change_them(tables):
    before = select.select(gate_up(16), H200, BATCH)
    tables(user=table_for(gate_up(16), "cublas"))
    assert select.select(gate_up(16), H200, BATCH) == before


def layer(**changes):
    x, gate, up, projection = draw(4, K, N, K_OUT)
    return x, GatedMLP(gate, up, projection, **{"deterministic": "batch"} | changes)


def test_a_layer_takes_decode_kernels_for_both_products_whatever_m(gpu):
    mlp = layer_of(all_on_device("mlp"), deterministic="batch")
    cuts = set()
    for m in (1, 200, 1000):
        gpu.driver.launches = []
        assert mlp(device_poisoned(m, K)).shape == (m, K_OUT)
        first, second = gpu.driver.launches
        assert first.entry.startswith("decode_")
        assert second.entry.startswith("decode_plain_")
        cuts.add(tuple((one.named["rows"], one.cluster) for one in (first, second)))
    assert len(cuts) == 1


def test_arrays_on_the_cpu_are_refused():
    x, mlp = layer()
    with pytest.raises(ValueError, match=f"{SAME} needs arrays on a Hopper GPU .* on the CPU"):
        mlp(x)


def test_another_gpu_is_refused(gpu):
    gpu.driver.capability, gpu.driver.name = A100.capability, A100.name.encode()
    mlp = layer_of(all_on_device("mlp"), deterministic="batch")
    with pytest.raises(ValueError, match=f"{SAME} needs .* got arrays on NVIDIA A100"):
        mlp(device_poisoned(4, K))
    assert gpu.driver.launches == gpu.portable == []


def test_what_tma_cannot_express_is_refused(gpu):
    mlp = layer_of(all_on_device("mlp"), deterministic="batch")
    with pytest.raises(ValueError, match=f"{SAME} cannot compute this problem: x's address"):
        mlp(device_poisoned(4, K, offset=1))
    assert gpu.driver.launches == gpu.portable == []


def test_packed_weights_are_refused():
    with pytest.raises(ValueError, match=f"{SAME} cannot compute this problem: packed weights"):
        select.select(packed_problem(), H200, BATCH)


@pytest.mark.parametrize("value", ["row", "", True])
def test_another_kind_of_determinism_is_refused(value):
    with pytest.raises(ValueError, match=f"deterministic must be None or 'batch', got {value!r}"):
        layer(deterministic=value)


def test_a_variant_beside_it_is_refused():
    with pytest.raises(ValueError, match="variant must be 'auto', got 'dual'"):
        layer(variant="dual")


def test_it_is_no_variant():
    for call in (lambda: layer(variant="batch"), lambda: select.check_name(BATCH)):
        with pytest.raises(ValueError, match="variant must be one of"):
            call()
    x, gate, up, _ = draw(4, K, N, K_OUT)
    with pytest.raises(ValueError, match="variant must be one of"):
        cuswiglu.swiglu(x, gate, up, variant=BATCH)


def test_a_split_is_said_in_words():
    assert str(Split(37, 1, 2)) == "tiles of 37 rows of the weights"
    assert str(Split(56, 8, 1)) == "tiles of 56 rows of the weights, K in 8 parts"
