"""The MLP on a GPU: gate and up in one launch, the down projection in another behind it."""

from __future__ import annotations

import functools

import pytest

import cuswiglu
from cuswiglu import variants
from cuswiglu.kernels.decode import DecodeVariant
from tests.helpers.calls import K_OUT, K, N, call, layer_of, repeated
from tests.helpers.compiled import DECODE, GATED, entry_of
from tests.helpers.device_arrays import all_on_device, device_poisoned, on_device
from tests.helpers.problems import weight

pytestmark = pytest.mark.usefixtures("any_evenness")

BY_FUNCTION = pytest.mark.parametrize("function", ["mlp", "GatedMLP"])
KERNELS = {entry.name: kernel for kernel in variants() for entry in kernel.entries}
FEW = 40  # tokens
MANY = 600  # tokens, for which decode kernels are not considered


@pytest.fixture(params=[FEW, MANY], ids=["few tokens", "many tokens"])
def arguments(request):
    """Of few tokens, which take decode kernels, and of many, which take kernels of tiles."""
    m = request.param
    given = all_on_device("mlp")
    return given | {"x": device_poisoned(m, K), "out": device_poisoned(m, K_OUT)}


@BY_FUNCTION
def test_gate_and_up_are_one_launch_and_down_another_on_the_same_stream(gpu, arguments, function):
    assert call(function, **arguments, stream=77) is arguments["out"]
    first, second = gpu.driver.launches
    assert KERNELS[first.entry].gated
    assert not KERNELS[second.entry].gated
    assert (first.stream, second.stream) == (77, 77)
    assert gpu.portable == []


@BY_FUNCTION
def test_the_second_kernel_multiplies_what_the_first_wrote_by_w_down(gpu, arguments, function):
    call(function, **arguments)
    first, second = gpu.driver.launches
    gate, up, down, out = (arguments[name].data.ptr for name in ("w_gate", "w_up", "w_down", "out"))
    assert list(first.addresses[:3]) == [arguments["x"].data.ptr, gate, up]
    hidden = first.addresses[3]
    assert hidden not in (arguments["x"].data.ptr, gate, up, down, out)
    # The kernel of one weight ignores its third descriptor.
    assert list(second.addresses) == [hidden, down, down, out]
    m = arguments["x"].shape[0]
    assert first.sizes == (m, N, K)
    assert second.sizes == (m, K_OUT, N)


def test_only_the_second_kernel_loads_weights_before_the_work_ahead_is_done(gpu, arguments):
    """The first one writes no weight; what runs ahead of that one may."""
    call("mlp", **arguments)
    assert [launch.named["weights_ahead"] for launch in gpu.driver.launches] == [0, 1]


def test_a_layer_loads_all_weights_ahead_from_the_second_call_of_a_kind_on(gpu, arguments):
    """By then they are there, and stay; the function knows nothing of its weights."""
    mlp = layer_of(arguments)

    def ahead(work):
        gpu.driver.launches = []
        work(arguments["x"], out=arguments["out"])
        return [launch.named["weights_ahead"] for launch in gpu.driver.launches]

    assert [ahead(mlp) for _ in range(3)] == [[0, 1], [1, 1], [1, 1]]
    given = {name: arguments[name] for name in ("w_gate", "w_up", "w_down")}
    function = functools.partial(cuswiglu.mlp, **given)
    assert [ahead(function) for _ in range(3)] == [[0, 1]] * 3


def test_both_kernels_may_start_before_the_work_ahead_ends(gpu, arguments):
    call("mlp", **arguments)
    assert [launch.overlapping for launch in gpu.driver.launches] == [True, True]


def test_each_kernel_has_the_cluster_of_its_own(gpu, arguments):
    call("mlp", **arguments)
    for launch in gpu.driver.launches:
        kernel = KERNELS[launch.entry]
        # K is of one step, which no two CTAs of a decode kernel can share.
        ctas = getattr(kernel, "cluster_m", getattr(kernel, "cluster_n", 1))
        assert launch.cluster == (ctas, 1, 1)


@pytest.mark.parametrize(("m", "few"), [(8, True), (MANY, False)])
def test_few_tokens_take_a_decode_kernel_and_many_another(gpu, m, few):
    k, n = 896, 4864  # of Qwen-2.5-0.5b
    gate, up = device_poisoned(n, k).T, device_poisoned(n, k).T
    cuswiglu.mlp(device_poisoned(m, k), gate, up, device_poisoned(k, n).T)
    assert isinstance(KERNELS[gpu.driver.launches[0].entry], DecodeVariant) == few


@BY_FUNCTION
def test_a_second_call_launches_twice_and_does_nothing_else(gpu, arguments, function):
    again = repeated(function, arguments)
    memory = device_poisoned(MANY, N).data  # the memory pool gives it again
    gpu.cupy.cuda.alloc = lambda size: memory
    again()
    gpu.driver.calls = []
    again()
    assert [name for name, _ in gpu.driver.calls] == ["cuLaunchKernelEx"] * 2


@pytest.mark.parametrize("kernel", [*GATED[:2], DECODE[0]], ids=lambda kernel: kernel.name)
def test_the_variant_chooses_the_kernel_of_gate_and_up(gpu, arguments, kernel):
    call("mlp", **arguments, variant=kernel.name)
    first, second = gpu.driver.launches
    assert first.entry == entry_of(kernel)
    assert not KERNELS[second.entry].gated


def test_the_portable_path_computes_both_products(gpu, arguments):
    call("mlp", **arguments, variant="cublas", stream=77)
    (product, operands, stream), (down_product, down_operands, down_stream) = gpu.portable
    assert (product, stream, down_product, down_stream) == ("swiglu", 77, "matmul", 77)
    assert down_operands[0].data.ptr == operands[-1].data.ptr
    assert down_operands[1].data.ptr == arguments["w_down"].data.ptr
    assert down_operands[2].data.ptr == arguments["out"].data.ptr
    assert gpu.driver.launches == []


def test_a_down_projection_that_tma_cannot_express_takes_the_portable_path(gpu, arguments):
    arguments["w_down"] = on_device(weight(N, K_OUT, "k", offset=1))
    with pytest.warns(UserWarning, match="w_down's address is a multiple of 2 bytes only"):
        call("mlp", **arguments)
    (launch,) = gpu.driver.launches
    ((product, (hidden, down, out), _),) = gpu.portable
    assert product == "matmul"
    assert launch.addresses[3] == hidden.data.ptr
    assert down.data.ptr == arguments["w_down"].data.ptr
    assert out.data.ptr == arguments["out"].data.ptr


def test_the_device_of_x_launches_both(gpu):
    call("mlp", **all_on_device("mlp", 1))
    assert [launch.device for launch in gpu.driver.launches] == [1, 1]


def test_no_tokens_launch_neither(gpu, arguments):
    arguments |= {"x": arguments["x"][:0], "out": None}
    assert call("mlp", **arguments).shape == (0, K_OUT)
    assert gpu.driver.launches == []


def test_a_refused_gate_and_up_launch_no_down_projection(gpu, arguments):
    arguments["x"] = device_poisoned(len(arguments["x"]), K, offset=1)
    with pytest.raises(ValueError, match="x's address"):
        call("mlp", **arguments, variant=GATED[0].family)
    assert gpu.driver.launches == gpu.portable == []
