"""Plans of decode kernels through the recorded driver: grid, descriptors, arguments, calls."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from cuswiglu import arrays, problem
from cuswiglu.api import display
from cuswiglu.kernels.split import Split
from cuswiglu.runtime import plan
from cuswiglu.runtime.driver import DriverError
from cuswiglu.selection.select import Choice
from tests.helpers.compiled import DECODE, DECODE_GATED, DECODE_PLAIN, GATED, entry_of, name_of
from tests.helpers.device_arrays import device_poisoned, on_device
from tests.helpers.fake_driver import COEFFICIENTS, run_in_threads
from tests.helpers.problems import weight

M, N, K = 21, 1000, 4104  # tails in all of them; K of more steps than there are stages
SMS = 132  # of the driver that is not there
SWIZZLE_128B = 3
NAMES = ["x", "w_gate", "w_up", "out"]
BY_MAJOR = pytest.mark.parametrize("major", ["k", "n"])
BY_CASE = pytest.mark.parametrize(
    ("kernel", "split"),
    [
        *((kernel, Split(24, 1, 1)) for kernel in DECODE),
        *((kernel, Split(8, 1, kernel.ctas)) for kernel in DECODE),
        *((kernel, Split(104, ranks, 1)) for kernel in DECODE_PLAIN for ranks in (2, 4, 8)),
    ],
    ids=lambda value: name_of(value) if not isinstance(value, Split) else f"{value}"[5:],
)
PLAIN_16 = next(kernel for kernel in DECODE_PLAIN if kernel.tokens == 16)
GATED_16 = next(kernel for kernel in DECODE_GATED if kernel.tokens == 16)


def operands(kernel, m=M, n=N, k=K, major="k", pad=0):
    """x, the weights and out on the device; rows of out are padded by `pad` elements."""
    weights = [on_device(weight(k, n, major)) for _ in range(2 if kernel.gated else 1)]
    return device_poisoned(m, k), weights, device_poisoned(m, n + pad)[:, :n]


def described(x, weights, out):
    """The problem, and views of its operands."""
    views = [arrays.view("weight", one) for one in weights]
    x, out = arrays.view("x", x), arrays.view("out", out)
    return problem.describe(x, views, out), (x, views, out)


def planned(gpu, kernel, split, given, **options):
    """The plan of a split, and a call of it on device 0."""
    asked, _ = described(*given)
    choice = Choice("sm90", kernel.name, kernel, split=split)
    with gpu.cupy.cuda.Device(0):
        made = plan.kernel_plan(asked, choice, **options)

    def call(x, weights, out, stream=77):
        _, views = described(x, weights, out)
        with gpu.cupy.cuda.Device(0):
            made(*views, stream)
        return gpu.driver.launches[-1]

    return made, call


def launch_of(gpu, kernel, split, *, weights_ahead=None, **sizes):
    given = operands(kernel, **sizes)
    _, call = planned(gpu, kernel, split, given, weights_ahead=weights_ahead)
    return call(*given), given


# Grid and configuration


@BY_CASE
def test_a_grid_is_of_clusters_that_share_k(gpu, kernel, split):
    found, _ = launch_of(gpu, kernel, split)
    laid = kernel.tiling(problem_of(kernel), split)
    items = -(-N // split.rows) * -(-M // kernel.tokens)
    assert laid.items == items
    # More than there is room for at once take turns.
    assert found.grid == (split.ranks, min(items, SMS // split.ranks), 1)
    assert found.cluster == (split.ranks, 1, 1)
    assert found.threads == 288
    assert found.shared_bytes == laid.shared_bytes
    assert found.overlapping


@functools.cache
def problem_of(kernel, major="k"):
    asked, _ = described(*operands(kernel, major=major))
    return asked


@pytest.mark.parametrize(
    ("split", "tiles", "clusters"),
    [
        (Split(8, 1, 1), 125, 125),
        (Split(8, 1, 1), 132, 132),
        (Split(8, 1, 1), 133, 132),
        (Split(8, 1, 1), 148, 132),
        (Split(8, 1, 2), 133, 133),
        (Split(8, 1, 2), 148, 148),
        (Split(8, 1, 2), 149, 132),
        (Split(8, 2, 1), 67, 66),
        (Split(8, 2, 2), 74, 74),
        (Split(8, 2, 2), 75, 66),
        (Split(8, 8, 1), 40, 16),
        (Split(8, 8, 2), 18, 18),
    ],
)
def test_clusters_take_tiles_in_turns_but_where_a_few_more_fit_beside_the_others(
    gpu, split, tiles, clusters
):
    """A turn of its own for each, on up to an eighth more than there are alone on their SMs."""
    found, _ = launch_of(gpu, PLAIN_16, split, m=16, n=8 * tiles, k=64 * 256)
    assert found.grid == (split.ranks, clusters, 1)


def test_tiles_of_tokens_are_taken_in_turns_too(gpu):
    found, _ = launch_of(gpu, GATED_16, Split(8, 1, 1), m=33, n=8 * 50)
    assert found.grid == (1, 132, 1)
    found, _ = launch_of(gpu, GATED_16, Split(8, 1, 1), m=32, n=8 * 50)
    assert found.grid == (1, 100, 1)


def test_a_gpu_with_fewer_multiprocessors_gets_a_smaller_grid(gpu):
    gpu.driver.multiprocessors = 78
    found, _ = launch_of(gpu, PLAIN_16, Split(8, 4, 1))
    assert found.grid == (4, 78 // 4, 1)


def test_a_part_of_a_gpu_on_which_no_cluster_fits_is_an_error_that_says_so(gpu):
    gpu.driver.multiprocessors = 4
    with pytest.raises(DriverError, match=f"no cluster of {PLAIN_16.name} fits"):
        launch_of(gpu, PLAIN_16, Split(8, 8, 1))


@pytest.mark.parametrize("split", [None, Split(0, 1, 1), Split(129, 1, 1), Split(8, 2, 1)])
def test_without_a_split_that_can_be_launched_there_is_no_plan(gpu, split):
    with pytest.raises(ValueError, match=f"{GATED_16.name} cannot be launched with"):
        planned(gpu, GATED_16, split, operands(GATED_16))


@pytest.mark.parametrize("kernel", DECODE, ids=name_of)
def test_a_kernel_may_use_all_shared_memory_of_a_cta(gpu, kernel):
    launch_of(gpu, kernel, Split(8, 1, 1))
    assert gpu.driver.told("cuFuncSetAttribute") == [(entry_of(kernel), 227 << 10)]


# Descriptors


@BY_MAJOR
@BY_CASE
def test_three_descriptors_say_where_x_and_the_weights_are_and_how_they_are_cut(
    gpu, kernel, split, major
):
    """A kernel with one weight ignores the third, which is of the same."""
    found, (x, weights, _) = launch_of(gpu, kernel, split, major=major)
    assert found.entry == entry_of(kernel, major)
    lies, box = ((K, N), (64, split.rows)) if major == "k" else ((N, K), (64, 64))
    expected = [
        (x, (K, M), (64, min(M, kernel.tokens))),
        (weights[0], lies, box),
        (weights[-1], lies, box),
    ]
    for described_so, (array, extents, cut) in zip(found.maps, expected, strict=True):
        assert (described_so.address, described_so.extents) == (array.data.ptr, extents)
        assert described_so.row_bytes == 2 * extents[0]
        assert (described_so.box, described_so.swizzle) == (cut, SWIZZLE_128B)
        assert described_so.element_strides == (1, 1)


@pytest.mark.parametrize("rows", [1, 27, 65, 127])
def test_boxes_of_weights_along_k_have_any_rows(gpu, rows):
    found, _ = launch_of(gpu, GATED_16, Split(rows, 1, 1))
    assert [described_so.box for described_so in found.maps[1:]] == [(64, rows)] * 2
    assert found.named["rows"] == rows


@BY_MAJOR
def test_descriptors_walk_padded_rows(gpu, major):
    _, _, out = operands(GATED_16)
    x = device_poisoned(M, K + 8)[:, :K]
    weights = [on_device(weight(K, N, major, pad=pad)) for pad in (16, 24)]
    _, call = planned(gpu, GATED_16, Split(24, 1, 1), (x, weights, out))
    width = K if major == "k" else N
    maps = call(x, weights, out).maps
    assert [found.row_bytes // 2 for found in maps] == [K + 8, width + 16, width + 24]


# Arguments


@BY_CASE
def test_a_kernel_is_told_sizes_and_stride_and_split(gpu, kernel, split):
    found, (_, _, out) = launch_of(gpu, kernel, split, pad=40, weights_ahead=True)
    assert found.addresses[3] == out.data.ptr
    assert found.named == {
        "m": M,
        "n": N,
        "k": K,
        "out_stride": N + 40,
        "rows": split.rows,
        "stages": kernel.tiling(problem_of(kernel), split).stages,
        "weights_ahead": 1,
        "activation": 0,
        **COEFFICIENTS,
    }


def test_a_stride_has_eight_bytes(gpu):
    """Rows of out may lie far apart."""
    given = operands(GATED_16)
    asked, views = described(*given)
    stride = (1 << 33) + 8
    far = dataclasses.replace(asked, out=dataclasses.replace(asked.out, stride=stride))
    choice = Choice("sm90", GATED_16.name, GATED_16, split=Split(8, 1, 1))
    with gpu.cupy.cuda.Device(0):
        plan.kernel_plan(far, choice)(*views, 77)
    assert gpu.driver.launches[-1].named["out_stride"] == stride


@pytest.mark.parametrize(("kernel", "ahead"), [(GATED_16, 0), (PLAIN_16, 1)], ids=name_of)
def test_only_a_down_projection_loads_weights_ahead_unless_said_otherwise(gpu, kernel, ahead):
    found, _ = launch_of(gpu, kernel, Split(8, 1, 1))
    assert found.named["weights_ahead"] == ahead


# Later calls


def encoded(gpu):
    """Addresses of the descriptors encoded so far; forgets them."""
    told = gpu.driver.told("cuTensorMapEncodeTiled")
    gpu.driver.calls = []
    return [record.address for record in told]


@pytest.mark.parametrize("moved", [[name] for name in NAMES] + [["x", "out"]], ids="+".join)
def test_a_later_call_encodes_what_moved_and_has_the_new_address_of_out(gpu, moved):
    given, others = (operands(GATED_16) for _ in range(2))
    _, call = planned(gpu, GATED_16, Split(27, 1, 1), given)
    call(*given)
    encoded(gpu)

    def flat(values):
        x, weights, out = values
        return dict(zip(NAMES, (x, *weights, out), strict=True))

    now = flat(given) | {name: flat(others)[name] for name in moved}
    x, gate, up, out = now.values()
    found = call(x, [gate, up], out)
    assert encoded(gpu) == [now[name].data.ptr for name in moved if name != "out"]
    assert list(found.addresses) == [array.data.ptr for array in now.values()]


def test_from_a_moment_on_weights_may_be_loaded_ahead(gpu):
    """As a GatedMLP says of its own, and of nothing else that a kernel is told."""
    given = operands(GATED_16)
    made, call = planned(gpu, GATED_16, Split(24, 1, 1), given)
    before = call(*given)
    made.load_weights_ahead()
    after = call(*given)
    assert (before.named.pop("weights_ahead"), after.named.pop("weights_ahead")) == (0, 1)
    assert before == after


def test_an_out_that_comes_back_is_written_again(gpu):
    given = operands(PLAIN_16)
    x, weights, first = given
    second = device_poisoned(M, N)
    _, call = planned(gpu, PLAIN_16, Split(27, 4, 1), given)
    found = [call(x, weights, out).addresses[3] for out in (first, second, first)]
    assert found == [first.data.ptr, second.data.ptr, first.data.ptr]


def test_threads_share_a_plan_without_mixing_their_results(gpu):
    sets = [operands(PLAIN_16, n=64, k=256) for _ in range(8)]
    _, call = planned(gpu, PLAIN_16, Split(8, 2, 1), sets[0])

    def work(number):
        for _ in range(25):
            call(*sets[number], stream=100 + number)

    run_in_threads(work, count=8)
    assert len(gpu.driver.launches) == 8 * 25
    for found in gpu.driver.launches:
        x, (only,), out = sets[found.stream - 100]
        assert list(found.addresses) == [array.data.ptr for array in (x, only, only, out)]


# Pictures


def test_a_picture_has_a_column_for_each_tile_and_a_row_for_each_tile_of_tokens(gpu):
    made, _ = planned(gpu, PLAIN_16, Split(100, 4, 1), operands(PLAIN_16, m=40))
    svg = display.tiling(made)
    assert svg.count(" 0v") == 9  # lines between 10 columns
    assert svg.count("M0 ") == 2  # and 3 rows


def test_a_caption_says_how_k_is_shared(gpu):
    made, _ = planned(gpu, PLAIN_16, Split(100, 4, 1), operands(PLAIN_16, m=40))
    assert display.caption(made) == (
        f"down, {PLAIN_16.name}: M = 40 in rows of 3 x 16; N = 1000 in columns of 10 x 100; "
        "30 clusters (K in 4 parts), 30 at once"
    )


def test_a_caption_of_single_ctas_says_nothing_of_parts(gpu):
    made, _ = planned(gpu, GATED_16, Split(27, 1, 1), operands(GATED_16, m=7))
    assert display.caption(made) == (
        f"gate and up, {GATED_16.name}: M = 7 in rows of 1 x 16; N = 1000 in columns of 38 x 27; "
        "38 clusters, 38 at once"
    )


def test_a_cluster_of_a_kernel_of_tiles_has_tiles_each(gpu):
    kernel = next(kernel for kernel in GATED if kernel.cluster_m == 2)
    made, _ = planned(gpu, kernel, None, operands(kernel, m=400))
    assert "(2 tiles each)" in display.caption(made)
