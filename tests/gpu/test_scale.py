"""Results beyond 2^31 elements, which is 2^32 bytes: of x, of the weights, of out, of a stride.

Every element is compared with FP64 (large.py), on outputs full of NaN between guard bands.
"""

from __future__ import annotations

import pytest

import cuswiglu
from cuswiglu import arrays, problem
from cuswiglu.runtime import plan
from cuswiglu.testing import numerics
from tests.gpu import large
from tests.gpu.compare import of_flips, product, reference
from tests.gpu.large import ROWS, Result

pytestmark = [
    pytest.mark.whole_gpu,
    # A kernel that hangs does not return to Python: only a thread can end the process.
    pytest.mark.timeout(120, method="thread", func_only=True),
]

BEYOND = 2**31  # elements
MOST_M, MOST = 1 << 20, 1 << 17  # of M; of K and N
GATED = ("auto", "dual", "sync", "decode", "cublas")
PLAIN = ("auto", "plain", "decode-plain", "cublas")
FAMILIES = {"k": GATED, "n": GATED, "p8": ("auto", "interleave"), "p1": ("interleave",)}
#: What is beyond -> M, K, N.
SHAPES = {
    "x": (MOST_M, 2056, 8),
    "weights of many columns": (24, 16_392, MOST),
    "weights of long columns": (24, MOST, 16_392),
    "out of many rows": (MOST_M, 8, 2056),
    "out of long rows": (16_392, 8, MOST),
}
BY_SHAPE = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
BY_LAYOUT = pytest.mark.parametrize("layout", ["k", "n"])


@pytest.fixture(autouse=True)
def _memory_given_back(cupy):
    yield
    cupy.get_default_memory_pool().free_all_blocks()


def gated(x, gate, up, out, family):
    """swiglu by a family; packed weights are `gate`, without `up`."""
    cuswiglu.swiglu(x, gate, up, out=out, variant=family)


def plain(cupy, x, weight, out, family):
    """x weight by a family, as `mlp` asks for its down projection."""
    views = arrays.view("x", x), arrays.view("w_down", weight), arrays.view("out", out)
    described = problem.describe(views[0], views[1:2], views[2])
    made = plan.plan_for(described, family)
    made(views[0], views[1:2], views[2], cupy.cuda.get_current_stream().ptr)


def check_families(cupy, families, compute, out, expected, k, **options):
    """compute(family) gives the expected result, for each; all that is wrong is told at once."""
    wrong = []
    for family in families:
        out.poison()
        compute(family)
        said = out.wrong(cupy, expected, k, **options)
        if said:
            wrong.append(f"{family}: {said}")
    assert not wrong, "\n".join(wrong)


def test_the_comparison_sees_a_wrong_element_and_one_written_outside(cupy, draw):
    x, gate, up = draw(300, 64, 96)
    expected = reference(cupy, x, gate, up)
    out = Result(cupy, 300, 96)
    gated(x, gate, up, out.array, "auto")
    assert out.wrong(cupy, expected, 64) == ""
    out.array[299, 95] = 100
    assert "1 of 28800 elements are wrong, the first in row 299, column 95" in out.wrong(
        cupy, expected, 64
    )
    large.at(out.buffer, large.GUARD, 300, 104, 104)[7, 96] = 0
    assert "1 elements outside of out were written, the first where row 7, column 96" in out.wrong(
        cupy, expected, 64
    )
    out.poison()
    assert "28800 of 28800 elements are wrong" in out.wrong(cupy, expected, 64)


@pytest.mark.parametrize("layout", FAMILIES)
@BY_SHAPE
def test_every_family_of_gate_and_up(cupy, draw, shape, layout):
    m, k, n = shape
    elements = m * k + (4 if layout.startswith("p") else 2) * k * n + m * (n + 8)
    large.need(cupy, elements * 2 / large.GIB + 2)
    (x, gate, up), blocks = large.operands(cupy, draw, m, k, n, layout if layout == "n" else "k")
    if layout.startswith("p"):
        gate, up = cuswiglu.pack(gate, up, granularity=int(layout[1:])), None
    out = Result(cupy, m, n)

    def compute(family):
        gated(x, gate, up, out.array, family)

    check_families(cupy, FAMILIES[layout], compute, out, reference(cupy, *blocks), k)


@BY_LAYOUT
@BY_SHAPE
def test_every_family_of_one_weight(cupy, draw, shape, layout):
    m, k, n = shape
    large.need(cupy, (m * k + 2 * k * n + m * (n + 8)) * 2 / large.GIB + 2)
    (x, weight, _), blocks = large.operands(cupy, draw, m, k, n, layout)
    out = Result(cupy, m, n)

    def compute(family):
        plain(cupy, x, weight, out.array, family)

    check_families(cupy, PLAIN, compute, out, product(cupy, *blocks[:2]), k)


@pytest.mark.parametrize("m", [1, 7, 130])
@BY_LAYOUT
def test_few_tokens_with_weights_beyond(cupy, draw, layout, m):
    """Other decode kernels than the 24 tokens above take, and a tile of tokens with a tail."""
    k, n = 16_392, MOST
    large.need(cupy, 2 * k * n * 2 / large.GIB + 2)
    (x, gate, up), blocks = large.operands(cupy, draw, m, k, n, layout)
    out = Result(cupy, m, n)

    def compute(family):
        gated(x, gate, up, out.array, family)

    check_families(cupy, ("auto", "decode"), compute, out, reference(cupy, *blocks), k)


def test_all_but_the_weights_at_once_in_an_mlp(cupy, draw):
    """x, the intermediate and out are beyond 2^31 elements each."""
    m, k, n = MOST_M, 2056, 2064
    large.need(cupy, (m * (k + 2 * n + k) * 2) / large.GIB + 2)
    block, gate, up = draw(ROWS, k, n)
    down = draw(1, n, k)[1]
    x = large.repeated(cupy, block, m)
    out = Result(cupy, m, k)

    def compute(family):
        cuswiglu.mlp(x, gate, up, down, out=out.array, variant=family)

    expected = numerics.mlp_reference(cupy, block, gate, up, down)
    check_families(cupy, ("auto", "dual"), compute, out, expected, n, flips=of_flips(n))


@BY_LAYOUT
def test_few_tokens_of_an_mlp_whose_projection_is_beyond(cupy, draw, layout):
    m, k, n, k_out = 4, 264, MOST, 16_392
    large.need(cupy, (2 * k * n + n * k_out) * 2 / large.GIB + 2)
    x, gate, up = draw(m, k, n, layout)
    block = draw(1, n, large.COLUMNS, layout)[1]
    down = large.weight(cupy, block, k_out)
    layer = cuswiglu.GatedMLP(gate, up, down)
    out = Result(cupy, m, k_out)
    expected = numerics.mlp_reference(cupy, x, gate, up, block)
    for call in ("the first", "a later one"):
        out.poison()
        layer(x, out=out.array)
        assert out.wrong(cupy, expected, n, flips=of_flips(n)) == "", call


# Views into large buffers


def placed(buffer, array, offset, stride):
    """A copy of a matrix in a buffer, whose contiguous runs begin so far apart."""
    if array.strides[0] < array.strides[1]:
        return placed(buffer, array.T, offset, stride).T
    view = large.at(buffer, offset, *array.shape, stride)
    view[...] = array
    return view


@BY_LAYOUT
def test_views_that_begin_beyond(cupy, draw, layout):
    m, k, n = 300, 264, 520
    large.need(cupy, 2 * BEYOND * 2 / large.GIB + 2)
    x, gate, up = draw(m, k, n, layout)
    run = max(m, k, n) * (n + 8)  # room for any of them
    buffer = large.nan_filled(cupy, BEYOND + 4 * run)
    inputs = [
        placed(buffer, array, BEYOND + number * run, n + 8)
        for number, array in enumerate((x, gate, up))
    ]
    out = Result(cupy, m, n, offset=BEYOND + 8)

    def compute(family):
        gated(*inputs, out.array, family)

    check_families(cupy, GATED, compute, out, reference(cupy, x, gate, up), k)


def reaching(rows):
    """A stride with which the last of so many rows begins beyond 2^31 elements."""
    return -(-BEYOND // (rows - 1) // 8) * 8


@pytest.mark.parametrize("m", [5, 300])
@BY_LAYOUT
def test_rows_that_reach_beyond(cupy, draw, layout, m):
    k, n = 264, 272
    large.need(cupy, 3 * (BEYOND + 2**24) * 2 / large.GIB + 2)
    x, gate, up = draw(m, k, n, layout)
    stride, rows = reaching(m), n if layout == "k" else k
    far_x = placed(large.nan_filled(cupy, m * stride), x, 0, stride)
    weights = large.nan_filled(cupy, rows * reaching(rows))
    far_gate = placed(weights, gate, 0, reaching(rows))
    far_up = placed(weights, up, 512, reaching(rows))
    out = Result(cupy, m, n, stride=stride)

    def compute(family):
        gated(far_x, far_gate, far_up, out.array, family)

    check_families(cupy, GATED, compute, out, reference(cupy, x, gate, up), k)


@pytest.mark.parametrize("stride", [BEYOND + 8, 2 * BEYOND + 64])
def test_rows_further_apart_than_32_bits_can_say(cupy, draw, stride):
    """Of x and of out: a stride cut to 32 bits would be negative, or a plausible small one."""
    m, k, n = 3, 64, 40
    large.need(cupy, 4 * stride * 2 / large.GIB + 4)
    x, gate, up = draw(m, k, n)
    buffer = large.nan_filled(cupy, 2 * stride + k)
    far_x = placed(buffer, x, 0, stride)
    out = Result(cupy, m, n, stride=stride)

    def gate_up(family):
        gated(far_x, gate, up, out.array, family)

    def projection(family):
        plain(cupy, far_x, gate, out.array, family)

    check_families(cupy, GATED, gate_up, out, reference(cupy, x, gate, up), k)
    check_families(cupy, PLAIN, projection, out, product(cupy, x, gate), k)


# What 32 bits cannot count


@pytest.mark.usefixtures("no_plans")
def test_more_tokens_than_tma_can_count_take_the_portable_path(cupy, draw):
    m, k, n = BEYOND + 8, 8, 8
    large.need(cupy, m * (k + n) * 2 / large.GIB + 2)
    (x, gate, up), blocks = large.operands(cupy, draw, m, k, n, "k")
    out = Result(cupy, m, n, stride=n)
    with pytest.raises(ValueError, match=r"x has 2147483656 rows"):
        gated(x, gate, up, out.array, "dual")
    with pytest.warns(UserWarning, match=r"portable path: x has 2147483656 rows"):
        gated(x, gate, up, out.array, "auto")
    assert out.wrong(cupy, reference(cupy, *blocks), k) == ""


# Full memory


@pytest.fixture
def full(cupy):
    """full.fill(bytes) takes all memory of the GPU but for so much; full.free() gives it back."""

    class Held:
        def __init__(self):
            self._memory = []

        def fill(self, left):
            cupy.get_default_memory_pool().free_all_blocks()
            piece = 64 * large.GIB
            while piece >= 2 << 20:
                free, _ = cupy.cuda.runtime.memGetInfo()
                if free - left < piece or not self._take(piece):
                    piece //= 2

        def _take(self, size):
            try:
                self._memory.append(cupy.cuda.Memory(size))
            except cupy.cuda.runtime.CUDARuntimeError:
                return False
            return True

        def free(self):
            self._memory.clear()

    held = Held()
    yield held
    held.free()


def call_of(kind, gate, up, down):
    layer = cuswiglu.GatedMLP(gate, up, down)
    return {
        "swiglu": lambda x: cuswiglu.swiglu(x, gate, up),
        "swiglu, portable": lambda x: cuswiglu.swiglu(x, gate, up, variant="cublas"),
        "mlp": lambda x: cuswiglu.mlp(x, gate, up, down),
        "GatedMLP": layer,
        "capture": lambda x: layer.capture(x).y,
    }[kind]


@pytest.mark.parametrize("planned", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize("kind", ["swiglu", "swiglu, portable", "mlp", "GatedMLP", "capture"])
def test_full_memory_is_an_error_and_calls_afterwards_are_right(cupy, draw, full, kind, planned):
    """There is room for the result of few tokens; that of many is refused, until there is room."""
    k, n = 512, 4096
    block, gate, up = draw(ROWS, k, n)
    down = draw(1, n, k)[1]
    few, many = block[:16], large.repeated(cupy, block, 64 * ROWS)
    call = call_of(kind, gate, up, down)
    if kind.startswith("swiglu"):
        expected, terms, flips = reference(cupy, block, gate, up), k, 0.0
    else:
        expected, terms = numerics.mlp_reference(cupy, block, gate, up, down), n
        flips = of_flips(n)
    for x in (block[:8], few, many) if planned else (block[:8],):
        call(x)  # kernels are loaded, and plans made
    cupy.cuda.runtime.deviceSynchronize()

    def check(x):
        found = call(x)
        out = Result(cupy, *found.shape)
        out.array[...] = found
        assert out.wrong(cupy, expected[: len(x)], terms, flips=flips) == ""

    full.fill(96 << 20)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        call(many)
    if kind != "swiglu, portable":  # which takes as much for few
        check(few)
    full.free()
    check(many)
    check(few)
