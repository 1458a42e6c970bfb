"""What the tables of kernels of exchanged operands have in common: for few tokens, and for any."""

from __future__ import annotations

import itertools

import pytest

from build_scripts.variants import DECODE_VARIANTS, SWAPPED_VARIANTS

BY_VARIANT = pytest.mark.parametrize(
    "variant", [*DECODE_VARIANTS, *SWAPPED_VARIANTS], ids=lambda variant: variant.name
)


@BY_VARIANT
def test_a_variant_has_an_entry_per_weight_layout_type_of_elements_and_epilogue(variant):
    alone = "silu" if variant.gated else "none"
    found = [(entry.layout, entry.w, entry.epilogue) for entry in variant.entries]
    assert found == list(itertools.product("kn", ["bfloat16", "float16"], [alone, "general"]))
    assert all(entry.x == entry.w == entry.out for entry in variant.entries)
