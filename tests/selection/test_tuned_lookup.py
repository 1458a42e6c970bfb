"""Looking up what was measured: whose table counts, and for which problems; and adding to one."""

from __future__ import annotations

import dataclasses

import pytest

from cuswiglu.common.device import Device
from cuswiglu.kernels.estimate import Rates
from cuswiglu.selection import select, tuned
from cuswiglu.selection.tuned import Key, lookup, merge
from tests.helpers.problems import of_elements, plain_problem, problem
from tests.helpers.tables import H200, entry, table

ASKED = problem(m=128)
USER, PACKAGED = entry("user's"), entry("packaged")


def found(asked=ASKED, gpu=H200.name, kernels=None):
    return lookup(asked, gpu, select.measured_with(H200) if kernels is None else kernels)


def holds(chosen, asked=ASKED, **changes):
    return table({Key.of(asked): chosen}, **changes)


# Which problems


@pytest.mark.parametrize(("m", "rows"), [(33, 64), (63, 64), (64, 64), (65, 72), (1000, 1000)])
def test_m_is_rounded_up_to_64_and_from_there_by_8(m, rows):
    assert Key.of(dataclasses.replace(ASKED, m=m)) == Key(True, rows, 96, 128, "k")


@pytest.mark.parametrize(("m", "tokens"), [(1, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32)])
def test_a_small_m_is_rounded_up_to_the_tokens_of_a_decode_kernel(m, tokens):
    assert Key.of(dataclasses.replace(ASKED, m=m)).m == tokens


@pytest.mark.parametrize(("m", "there"), [(120, False), (121, True), (128, True), (129, False)])
def test_problems_of_as_many_eights_of_tokens_share_a_choice(tables, m, there):
    tables(user=holds(USER))
    assert found(dataclasses.replace(ASKED, m=m)) == (USER if there else None)


@pytest.mark.parametrize(
    "other",
    [
        problem(m=128, n=104),
        problem(m=128, k=136),
        problem(m=128, major="n"),
        plain_problem(m=128),
    ],
    ids=["N", "K", "layout", "one weight"],
)
def test_other_problems_have_other_choices(tables, other):
    tables(user=holds(USER), packaged=holds(PACKAGED))
    assert found(other) is None


def test_padding_and_device_make_no_other_choice(tables):
    """They change little of the time, and never what can be computed."""
    tables(user=holds(USER))
    assert found(dataclasses.replace(ASKED, device=Device("cuda", 3))) == USER


# Element types


FP16 = of_elements(ASKED, "float16")


def test_a_key_has_the_element_types_of_x_the_weights_and_the_result():
    names = ("bfloat16", "float16", "float8_e4m3fn")
    assert Key.of(of_elements(ASKED, *names)).elements == names


def test_fp16_takes_what_was_measured_in_bf16(tables):
    """As many bytes, at the same rates."""
    tables(user=holds(USER))
    assert found(FP16) == USER


def test_what_was_measured_in_fp16_counts_for_fp16_alone_and_first(tables):
    tables(user=table({Key.of(FP16): PACKAGED, Key.of(ASKED): USER}))
    assert (found(FP16), found(ASKED)) == (PACKAGED, USER)
    tables(user=holds(USER, FP16))
    assert found(ASKED) is None


def test_other_element_types_take_nothing_that_was_measured_in_bf16(tables):
    tables(user=holds(USER))
    assert found(of_elements(ASKED, "bfloat16", "float8_e4m3fn", "bfloat16")) is None


# Whose table


def test_without_tables_nothing_is_found(tables):
    tables()
    assert found() is None


def test_the_users_table_counts_before_the_packages(tables):
    tables(user=holds(USER), packaged=holds(PACKAGED))
    assert found() == USER


def test_what_the_user_has_not_measured_is_taken_from_the_packages(tables):
    tables(user=holds(USER, problem(m=1)), packaged=holds(PACKAGED))
    assert found() == PACKAGED


def test_tables_of_another_gpu_are_ignored_in_silence(tables, recwarn):
    tables(user=holds(USER, gpu="NVIDIA H100 PCIe"), packaged=holds(PACKAGED, gpu="NVIDIA GH200"))
    assert found() is None
    assert list(recwarn) == []


def test_a_users_table_of_another_gpu_leaves_the_packages_in_use(tables):
    tables(user=holds(USER, gpu="NVIDIA H100 PCIe"), packaged=holds(PACKAGED))
    assert found() == PACKAGED


def test_a_users_table_of_other_kernels_is_ignored_with_one_warning(tables):
    path = tables(user=holds(USER, kernels="other"), packaged=holds(PACKAGED)).user
    with pytest.warns(UserWarning, match="measured with other kernels") as record:
        assert [found(), found(problem(m=1))] == [PACKAGED, None]
    assert len(record) == 1
    for word in (str(path), "write it anew with `cuswiglu tune`"):
        assert word in str(record[0].message)


def test_tables_are_read_once(tables):
    paths = tables(user=holds(USER))
    assert found() == USER
    paths.user.unlink()
    assert found() == USER


def test_a_forgotten_table_is_read_as_a_new_process_does(tables):
    tables(user=holds(USER))
    assert found() == USER
    tables()
    assert found() is None


# The kernels' fingerprint


def test_the_fingerprint_is_that_of_the_code_whatever_its_order():
    kernels = list(select.variants())
    assert select.fingerprint_of(kernels) == select.fingerprint_of(kernels[::-1])
    assert len(select.fingerprint_of(kernels)) == 16


@pytest.mark.parametrize("index", [0, -1])
def test_the_fingerprint_changes_with_any_kernels_code(index):
    kernels = list(select.variants())
    before = select.fingerprint_of(kernels)
    kernels[index] = dataclasses.replace(kernels[index], sha256="0" * 64)
    assert select.fingerprint_of(kernels) != before


def test_the_fingerprint_changes_with_the_number_of_kernels():
    kernels = select.variants()
    assert select.fingerprint_of(kernels[1:]) != select.fingerprint_of(kernels)


def test_a_measurement_counts_for_one_driver():
    newer = dataclasses.replace(H200, driver="13.0")
    assert select.measured_with(newer) != select.measured_with(H200)
    assert select.fingerprint_of(select.variants()) in select.measured_with(H200)


# Adding to a table

KEYS = [Key(True, 64 * i, 96, 128, "k") for i in (1, 2, 3)]
RATES = {"dual": Rates(0.5, 2.0)}
OLD = table({KEYS[0]: entry("a"), KEYS[1]: entry("b")}, gpu="GPU", kernels="hash", rates=RATES)


def test_new_choices_join_the_old_ones_and_replace_those_of_the_same_key():
    new = merge(OLD, [(KEYS[1], entry("c")), (KEYS[2], entry("d"))], "GPU", "hash")
    assert {key: chosen.variant for key, chosen in new.choices.items()} == dict(
        zip(KEYS, "acd", strict=True)
    )
    assert (new.gpu, new.measured_with, new.rates) == ("GPU", "hash", RATES)


@pytest.mark.parametrize(("gpu", "kernels"), [("another", "hash"), ("GPU", "another")])
def test_choices_and_rates_of_another_gpu_or_other_kernels_are_dropped(gpu, kernels):
    new = merge(OLD, [(KEYS[2], entry("d"))], gpu, kernels)
    assert new == table({KEYS[2]: entry("d")}, gpu=gpu, kernels=kernels)


def test_the_old_table_stays_as_it_was():
    before = tuned.serialise(OLD)
    new = merge(OLD, [(KEYS[1], entry("c"))], "GPU", "hash")
    new.choices.clear()
    new.rates.clear()
    assert tuned.serialise(OLD) == before


def test_nothing_is_added_to_the_empty_table():
    merge(tuned.EMPTY, [(KEYS[0], entry("a"))], "", "").rates["dual"] = Rates(1.0, 1.0)
    assert table(gpu="", kernels="") == tuned.EMPTY
