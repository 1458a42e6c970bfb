"""Selection: a pure function of problem, device and name. Which variant wins is not tested."""

from __future__ import annotations

import dataclasses
import os
import warnings

import pytest

from cuswiglu import KernelsUnavailableError, variants
from cuswiglu.common.device import DeviceInfo
from cuswiglu.selection import select as select_module
from cuswiglu.selection.select import Choice, check_name, known_names, select
from tests.helpers.compiled import GATED, MAJORS, name_of
from tests.helpers.host_arrays import poisoned
from tests.helpers.problems import (
    BADLY_PADDED,
    UNALIGNED,
    plain_problem,
    problem,
    problem_for,
    weight,
)

H200 = DeviceInfo("NVIDIA H200", (9, 0), 132)
A100 = DeviceInfo("NVIDIA A100-SXM4-80GB", (8, 0), 108)
B200 = DeviceInfo("NVIDIA B200", (10, 0), 148)
NAMES = [kernel.name for kernel in variants()]
FAMILIES = sorted({kernel.family for kernel in variants()})
BY_KERNEL = pytest.mark.parametrize("kernel", variants(), ids=name_of)
#: Names of gate and up: families and variants.
GATED_NAMES = [*dict.fromkeys(kernel.family for kernel in GATED), *(k.name for k in GATED)]
OBSTACLES = {
    **{f"address of {name}": (name, make) for name, make in UNALIGNED.items()},
    **{f"row stride of {name}": (name, make) for name, make in BADLY_PADDED.items()},
    "N": ("N must be a multiple of 8, got 100", lambda: problem(n=100)),
    "K": ("K must be a multiple of 8, got 132", lambda: problem(k=132)),
    "layouts": (
        "w_gate and w_up must have the same layout",
        lambda: problem(up=weight(128, 96, "n")),
    ),
}


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# The backend


@pytest.mark.parametrize("variant", ["auto", "numpy"])
def test_arrays_on_the_cpu_take_the_reference(variant):
    assert select(problem(), None, variant) == Choice("numpy", "numpy", None)
    assert select(plain_problem(), None, variant) == Choice("numpy", "numpy", None)


@pytest.mark.parametrize("variant", ["cublas", *FAMILIES, *NAMES])
def test_arrays_on_the_cpu_take_no_variant_of_a_gpu(variant):
    with pytest.raises(ValueError, match=f"'{variant}' needs arrays on a CUDA device.*CPU"):
        select(problem(), None, variant)


@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.name)
def test_arrays_on_a_gpu_take_no_reference(device):
    with pytest.raises(ValueError, match=r"'numpy' needs arrays on the CPU.*cupy\.asnumpy"):
        select(problem(), device, "numpy")


def test_a_hopper_gpu_takes_a_kernel():
    choice = select(problem(), H200)
    assert choice.backend == "sm90"
    assert choice.kernel in variants()
    assert choice.variant == choice.kernel.name


@pytest.mark.parametrize("device", [A100, B200], ids=lambda device: device.name)
def test_other_gpus_take_the_portable_path_without_a_warning(device):
    assert select(problem(), device) == Choice("cublas", "cublas", None)


@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.name)
def test_the_portable_path_can_be_asked_for_on_any_gpu(device):
    assert select(problem(), device, "cublas") == Choice("cublas", "cublas", None)


@BY_KERNEL
@pytest.mark.parametrize("kind", ["name", "family"])
def test_an_explicit_kernel_on_another_gpu_is_refused(kernel, kind):
    variant = getattr(kernel, kind)
    with pytest.raises(ValueError, match=f"'{variant}' needs a Hopper GPU") as caught:
        select(problem_for(kernel), A100, variant)
    assert "(compute capability 9.0), got NVIDIA A100-SXM4-80GB (8.0)" in str(caught.value)
    assert "use variant='auto'" in str(caught.value)


def test_the_portable_path_needs_no_compiled_kernels(monkeypatch):
    def missing():
        raise KernelsUnavailableError("missing")

    monkeypatch.setattr(select_module, "variants", missing)
    assert select(problem(), A100).backend == "cublas"
    assert select(problem(), H200, "cublas").backend == "cublas"
    with pytest.raises(KernelsUnavailableError):
        select(problem(), H200)


# Names


@BY_KERNEL
def test_every_variant_is_reachable_by_name(kernel):
    choice = select(problem_for(kernel), H200, kernel.name)
    assert (choice.variant, choice.kernel) == (kernel.name, kernel)


@BY_KERNEL
def test_a_family_takes_one_of_its_variants(kernel):
    assert select(problem_for(kernel), H200, kernel.family).kernel.family == kernel.family


def test_every_known_name_passes_the_check():
    names = known_names(variants())
    assert {"auto", "numpy", "cublas", *FAMILIES, *NAMES} == set(names)
    assert len(names) == len(set(names))
    for name in names:
        check_name(name)


@pytest.mark.parametrize("name", ["", "duel", "AUTO", "dual_pingpong", "dual_pingpong_128x96"])
def test_an_unknown_name_is_refused_and_the_known_are_listed(name):
    for refuse in (check_name, lambda name: select(problem(), H200, name)):
        with pytest.raises(ValueError, match="variant must be one of") as caught:
            refuse(name)
        assert all(known in str(caught.value) for known in known_names(variants()))
        assert str(caught.value).endswith(f"got {name!r}")


# Limits


@pytest.mark.parametrize("obstacle", OBSTACLES)
@pytest.mark.parametrize("variant", GATED_NAMES)
def test_an_explicit_kernel_names_the_limit_that_is_broken(variant, obstacle):
    words, make = OBSTACLES[obstacle]
    with pytest.raises(ValueError, match=f"'{variant}' cannot compute this problem") as caught:
        select(make(), H200, variant)
    assert words in str(caught.value)


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_auto_takes_the_portable_path_with_one_warning_that_names_the_limit(obstacle):
    words, make = OBSTACLES[obstacle]
    for _ in range(2):  # each call warns
        with pytest.warns(UserWarning, match="takes the portable path") as record:
            assert select(make(), H200) == Choice("cublas", "cublas", None)
        assert len(record) == 1
        assert words in str(record[0].message)


def test_the_warning_points_at_the_caller():
    with pytest.warns(UserWarning, match="takes the portable path") as record:
        select(UNALIGNED["x"](), H200)
    assert os.path.samefile(record[0].filename, __file__)


def test_a_script_is_warned_too():
    script = {"__name__": "__main__", "__package__": None, "call": lambda: None}
    script |= {"select": select, "problem": UNALIGNED["x"], "device": H200}
    exec("def main():\n    return select(problem(), device)", script)
    with pytest.warns(UserWarning, match="takes the portable path"):
        assert script["main"]().backend == "cublas"


# Auto never picks what cannot run


SIZES = [1, 63, 128, 1000, 5000]


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize(("n", "k"), [(8, 8), (1000, 4104), (4864, 896), (18944, 3584)])
@pytest.mark.parametrize("major", MAJORS)
def test_auto_picks_a_variant_that_can_compute_the_problem(m, n, k, major):
    asked = dataclasses.replace(problem(major=major), m=m, n=n, k=k)
    choice = select(asked, H200)
    assert choice.backend == "sm90"
    assert choice.kernel.obstacle(asked) is None
    assert select(asked, H200) == choice


@pytest.mark.usefixtures("any_evenness")
def test_auto_and_a_family_pass_over_variants_with_an_obstacle():
    """Whichever single variant can compute the problem is taken, wherever it stands."""
    narrow = [dataclasses.replace(kernel, n_multiple=1024) for kernel in variants()]
    for index, able in enumerate(variants()):
        kernels = [*narrow[:index], able, *narrow[index + 1 :]]
        for name in ("auto", able.family):
            assert select(problem_for(able), H200, name, kernels).kernel == able


def test_selection_sees_only_the_kernels_it_is_given():
    other, one = GATED[0], GATED[-1]
    assert select(problem_for(one), H200, "auto", [one]).kernel == one
    with pytest.raises(ValueError, match="variant must be one of"):
        select(problem_for(one), H200, other.name, [one])


def test_padding_that_tma_can_express_is_no_obstacle():
    padded = problem(x=poisoned(64, 136)[:, :128], out=poisoned(64, 104)[:, :96])
    assert select(padded, H200).backend == "sm90"
