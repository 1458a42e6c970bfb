"""The table of variants of exchanged operands, and what follows from a row."""

from __future__ import annotations

import re

import pytest

from build_scripts.variants.base import MMA_ROWS
from build_scripts.variants.swapped import SWAPPED_VARIANTS
from tests.helpers.swapped_kernels import kernel_of

BY_VARIANT = pytest.mark.parametrize("variant", SWAPPED_VARIANTS, ids=lambda variant: variant.name)


def entries_of(source):
    """(name, traits, general, CTAs) of every entry point that a source makes."""
    return re.findall(r"CUSWIGLU_ENTRY\((\w+), (\w+), (\w+), (\d)\)", source)


def test_there_are_kernels_of_gate_and_up_and_of_one_weight_without_and_with_a_cluster():
    found = [(one.gated, one.cluster_n) for one in SWAPPED_VARIANTS]
    assert found == [(True, 1), (True, 2), (False, 1), (False, 2), (False, 4)]


def test_a_name_says_family_schedule_tile_and_cluster():
    assert [one.name for one in SWAPPED_VARIANTS] == [
        *("dual_pingpong_208x64_1x1", "dual_pingpong_200x64_1x2"),
        *("plain_pingpong_208x128_1x1", "plain_pingpong_200x128_1x2"),
        "plain_pingpong_200x128_1x4",
    ]


@BY_VARIANT
def test_an_entry_is_named_by_its_variant_layout_elements_and_epilogue(variant):
    behind = ["", "_any", "_f16", "_f16_any"]
    expected = [f"{variant.name}_{layout}{end}" for layout in "kn" for end in behind]
    assert [entry.name for entry in variant.entries] == expected


@BY_VARIANT
def test_a_tile_has_both_weights_boxes_or_two_of_the_only_weight(variant):
    assert variant.block_n == (1 if variant.gated else 2) * MMA_ROWS


@BY_VARIANT
def test_tokens_of_a_tile_go_in_steps_of_8(variant):
    kernel = kernel_of(variant)
    assert kernel.fewest % 8 == kernel.most % 8 == 0
    assert kernel.fewest < kernel.most == variant.most


@BY_VARIANT
def test_bytes_beside_the_stages_hold_the_results_buffers_and_all_barriers(variant):
    """Two buffers of 32 tokens for either consumer; two barriers a stage, and two of sums."""
    kernel = kernel_of(variant)
    results = 2 * 2 * 32 * kernel.mma_rows * 2
    barriers = 8 * (2 * kernel.max_stages + 2)
    assert kernel.fixed_bytes == -(-(results + barriers) // 1024) * 1024


# The source


@BY_VARIANT
def test_the_source_has_the_entries_in_order_each_with_the_types_and_sizes_of_its_kind(variant):
    source = variant.translation_unit()
    traits = re.findall(
        r"using (\w+)_traits = cuswiglu::swapped::SwappedTraits<"
        r"cutlass::(\w+), (\w+), (\d), cuswiglu::Major::(\w+), (\d+), (\d+)>;",
        source,
    )
    halves = {"bfloat16": "bfloat16_t", "float16": "half_t"}
    majors = {"k": "K", "n": "MN"}
    own = str(variant.gated).lower(), str(variant.cluster_n)
    sizes = "64", str(variant.most)
    assert traits == [
        (e.name, halves[e.w], *own, majors[e.layout], *sizes) for e in variant.entries
    ]
    assert entries_of(source) == [
        (e.name, f"{e.name}_traits", str(e.epilogue == "general").lower(), "1")
        for e in variant.entries
    ]


@BY_VARIANT
def test_the_compiler_checks_what_the_library_computes_with_for_every_entry(variant):
    kernel, source = kernel_of(variant), variant.translation_unit()
    checked = {
        "kThreads": kernel.threads,
        "kMmaRows": kernel.mma_rows,
        "kMaxStages": kernel.max_stages,
        "kFixedBytes": kernel.fixed_bytes,
        "kStep": 8,
    }
    found = re.findall(r'static_assert\((\w+)_traits::(\w+) == (\d+), "manifest"\);', source)
    assert found == [
        (entry.name, name, str(value))
        for entry in variant.entries
        for name, value in checked.items()
    ]


@BY_VARIANT
def test_entries_take_the_arguments_in_the_declared_order(variant):
    declared = re.search(r"NAME\((.*?)\) \{", variant.translation_unit()).group(1)
    names = [parameter.split()[-1] for parameter in declared.split(", ")]
    assert names == [name for name, _ in variant.arguments]


@BY_VARIANT
def test_the_kernel_is_told_how_tokens_are_cut_behind_the_sizes(variant):
    names = [name for name, _ in variant.arguments]
    first = names.index("m")
    assert names[first : names.index("weights_ahead")] == [
        *("m", "n", "k", "raster_rows"),
        *("columns", "wide", "width", "whole", "rows", "stages"),
    ]


@BY_VARIANT
def test_the_source_asks_for_cutes_header_of_all_widths_of_products(variant):
    lines = variant.translation_unit().splitlines()
    asked = lines.index("#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED")
    assert asked < lines.index('#include "impls/sm90_swapped.cuh"')
