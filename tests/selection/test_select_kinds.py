"""Selection by kind: gate and up, one weight, packed weights; and by the layout of the weights."""

from __future__ import annotations

import dataclasses
import warnings

import pytest

from cuswiglu.common.device import DeviceInfo
from cuswiglu.problem import EntryPoint, Layout
from cuswiglu.selection.select import Choice, select
from tests.helpers.compiled import (
    BF16,
    DECODE_GATED,
    DECODE_PLAIN,
    GATED,
    PACKED,
    PLAIN,
    SWAPPED_GATED,
    SWAPPED_PLAIN,
    made_up,
    name_of,
    with_layouts,
)
from tests.helpers.host_arrays import poisoned
from tests.helpers.problems import packed_problem, plain_problem, problem

H200 = DeviceInfo("NVIDIA H200", (9, 0), 132)
SIZES = [(1, 8, 8), (64, 96, 128), (1000, 4864, 896), (5000, 3584, 18944)]
BY_SIZE = pytest.mark.parametrize(("m", "n", "k"), SIZES)


@pytest.mark.usefixtures("any_evenness")
@BY_SIZE
def test_one_weight_takes_a_plain_kernel(m, n, k):
    choice = select(dataclasses.replace(plain_problem(), m=m, n=n, k=k), H200)
    assert choice.kernel in [*PLAIN, *SWAPPED_PLAIN, *DECODE_PLAIN]


@BY_SIZE
def test_gate_and_up_take_a_gated_kernel(m, n, k):
    choice = select(dataclasses.replace(problem(), m=m, n=n, k=k), H200)
    assert choice.kernel in [*GATED, *SWAPPED_GATED, *DECODE_GATED]


@pytest.mark.parametrize("kernel", [*PLAIN, *SWAPPED_PLAIN, *DECODE_PLAIN], ids=name_of)
@pytest.mark.parametrize("kind", ["name", "family"])
def test_a_plain_kernel_is_never_given_gate_and_up(kernel, kind):
    with pytest.raises(ValueError, match="variant"):
        select(problem(), H200, getattr(kernel, kind))


@pytest.mark.parametrize("kernel", [*GATED, *SWAPPED_GATED, *DECODE_GATED], ids=name_of)
@pytest.mark.parametrize("kind", ["name", "family"])
def test_a_gated_kernel_is_never_given_one_weight(kernel, kind):
    with pytest.raises(ValueError, match="variant"):
        select(plain_problem(), H200, getattr(kernel, kind))


def test_a_plain_kernel_asked_for_gate_and_up_says_what_it_computes():
    name = PLAIN[0].name
    with pytest.raises(ValueError, match=f"{name} computes a product with one weight"):
        select(problem(), H200, name)


def test_without_a_kernel_of_its_kind_a_problem_takes_the_portable_path():
    """The package's table has kernels of both kinds; another build need not."""
    with pytest.warns(UserWarning, match="portable path"):
        assert select(plain_problem(), H200, "auto", GATED) == Choice("cublas", "cublas")


# Layouts


def test_n_major_weights_pass_over_a_kernel_without_such_an_entry():
    only_k = with_layouts(made_up(name="only_k"), "k")
    both = with_layouts(made_up(name="both"), "k", "n")
    for kernels in ([only_k, both], [both, only_k]):
        assert select(problem(major="n"), H200, "auto", kernels).kernel == both
        assert select(problem(major="n"), H200, both.family, kernels).kernel == both


@pytest.mark.parametrize("kind", ["name", "family"])
def test_n_major_weights_forced_on_a_kernel_of_k_major_ones_name_the_limit(kind):
    only_k = with_layouts(made_up(), "k")
    variant = getattr(only_k, kind)
    with pytest.raises(ValueError, match=f"'{variant}' cannot compute this problem") as caught:
        select(problem(major="n"), H200, variant, [only_k])
    assert "the weights must be contiguous along K" in str(caught.value)
    assert "weight.T" in str(caught.value)


def test_n_major_weights_that_no_kernel_takes_go_the_portable_path_with_a_warning():
    only_k = with_layouts(made_up(), "k")
    with pytest.warns(UserWarning, match="weights must be contiguous along K") as record:
        assert select(problem(major="n"), H200, "auto", [only_k]) == Choice("cublas", "cublas")
    assert len(record) == 1


@pytest.mark.usefixtures("any_evenness")
def test_an_n_major_down_projection_takes_a_kernel_that_has_the_entry():
    both = with_layouts(PLAIN[0], "k", "n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert select(plain_problem(major="n"), H200, "auto", [both]).kernel == both


# Packed weights


def packed_kernel(name="packed", **changes):
    entry = EntryPoint(Layout.PACKED_8, *BF16, "none", "silu", False, f"{name}_p8")
    made = made_up(name=name, family="interleave", entries=(entry,), **changes)
    boxes = (*made.boxes, ("weight_p8", (64, 64, 128)))
    return dataclasses.replace(made, widths=(("p8", (made.block_n,)),), boxes=boxes)


def test_packed_weights_take_a_kernel_of_their_granularity():
    kernels = [*GATED, packed_kernel()]
    assert select(packed_problem(), H200, "auto", kernels).kernel.name == "packed"


def test_weights_that_are_not_packed_pass_over_such_a_kernel():
    kernels = [packed_kernel(), *GATED]
    assert select(problem(), H200, "auto", kernels).kernel.name != "packed"


@pytest.mark.parametrize("kernel", PACKED, ids=name_of)
def test_a_compiled_kernel_of_packed_weights_takes_nothing_else(kernel):
    with pytest.raises(ValueError, match=r"weights must be packed \(cuswiglu\.pack\)"):
        select(problem(), H200, kernel.name)


def test_packed_weights_forced_on_another_family_name_the_limit():
    with pytest.raises(ValueError, match="need a kernel of the interleave family"):
        select(packed_problem(), H200, GATED[0].name)


def test_the_warning_of_packed_weights_names_what_is_wrong_with_them():
    """A kernel of the interleave family is there; what stops it is an address."""
    unaligned = packed_problem(x=poisoned(64, 128, offset=1))
    with pytest.warns(UserWarning, match="portable path") as record:
        select(unaligned, H200, "auto", [*GATED, packed_kernel()])
    assert "x's address is a multiple of 2 bytes only" in str(record[0].message)


def test_a_down_projection_goes_to_cublas_where_tiles_fill_their_waves_badly():
    choice = select(plain_problem(m=1024, n=896, k=4864), H200, "auto", PLAIN)
    assert (choice.backend, choice.kernel) == ("cublas", None)
    assert "cuBLAS splits K" in choice.reason


def test_a_down_projection_goes_to_cublas_where_that_is_estimated_to_be_faster():
    choice = select(plain_problem(m=180, n=5120, k=13824), H200)
    assert (choice.backend, choice.kernel) == ("cublas", None)
    assert choice.reason.startswith("estimated: ")


@pytest.mark.parametrize(("m", "n", "k"), [(200, 896, 4864), (1440, 2048, 11008)])
def test_a_down_projection_takes_our_kernel_where_that_is_estimated_to_be_faster(m, n, k):
    assert select(plain_problem(m=m, n=n, k=k), H200).kernel in SWAPPED_PLAIN


def test_a_down_projection_of_few_columns_is_cut_along_k_over_a_cluster():
    kernel = select(plain_problem(m=200, n=896, k=4864), H200).kernel
    assert kernel.splits_all


def test_gate_and_up_stay_on_our_kernels_however_few_their_tiles():
    assert select(problem(m=1, n=896, k=4864), H200).backend == "sm90"


def test_a_named_plain_kernel_runs_however_few_its_tiles():
    name = PLAIN[0].name
    assert select(plain_problem(m=64, n=896, k=4864), H200, name).variant == name
