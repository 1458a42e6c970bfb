"""The table of variants for few tokens, and what follows from a row."""

from __future__ import annotations

import re

import pytest

from build_scripts.variants.decode import DECODE_VARIANTS
from tests.helpers.compiled import DECODE

BY_VARIANT = pytest.mark.parametrize("variant", DECODE_VARIANTS, ids=lambda variant: variant.name)
COMPILED = {kernel.name: kernel for kernel in DECODE}


@BY_VARIANT
def test_the_manifest_says_what_the_table_says(variant):
    kernel = COMPILED[variant.name]
    assert kernel.family == variant.family
    assert kernel.gated == variant.gated
    assert [entry.name for entry in kernel.entries] == [entry.name for entry in variant.entries]
    assert kernel.arguments == variant.arguments
    facts = variant.facts()
    assert facts.pop("kind") == "decode"
    assert {name: getattr(kernel, name) for name in facts} == facts


@BY_VARIANT
def test_a_tile_has_at_most_the_rows_that_two_warpgroups_multiply_at_once(variant):
    """The last warp loads, and multiplies nothing."""
    kernel = COMPILED[variant.name]
    warpgroups = (kernel.threads - 32) // 128
    assert kernel.max_rows == warpgroups * kernel.mma_rows


@BY_VARIANT
def test_the_source_has_the_entries_in_order_each_with_the_types_and_sizes_of_its_kind(variant):
    source = variant.translation_unit()
    traits = re.findall(
        r"using (\w+)_traits = .*<cutlass::(\w+), (\w+), (\d+), .*::(\w+)>;", source
    )
    halves = {"bfloat16": "bfloat16_t", "float16": "half_t"}
    gated = str(variant.gated).lower()
    assert traits == [
        (e.name, halves[e.w], gated, str(variant.tokens), {"k": "K", "n": "MN"}[e.layout])
        for e in variant.entries
    ]
    made = re.findall(r"CUSWIGLU_ENTRY\((\w+), (\w+)_traits, (\w+), (\d)\)", source)
    assert made == [
        (e.name, e.name, str(e.epilogue == "general").lower(), str(variant.ctas))
        for e in variant.entries
    ]
