"""The table of tile variants, and what follows from a row."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pytest

from build_scripts.variants import ABLATIONS, ALL_VARIANTS, TILE_VARIANTS
from build_scripts.variants.tile import COMMON_WIDTHS, TileSource
from cuswiglu.kernels.manifest import variants

ALL = tuple(dict.fromkeys((*TILE_VARIANTS, *ABLATIONS)))
BY_NAME = pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
DUAL = TileSource("dual", "pingpong", 128, 96, 1)
PAIR = dataclasses.replace(DUAL, cluster_m=2)


def test_names_and_entries_are_unique():
    for table in (ALL_VARIANTS, ABLATIONS):
        names = [variant.name for variant in table]
        entries = [entry.name for variant in table for entry in variant.entries]
        assert len(set(names)) == len(names)
        assert len(set(entries)) == len(entries)


@BY_NAME
def test_entries_are_names_of_c_functions(variant):
    for entry in variant.entries:
        assert re.fullmatch(r"[a-z]\w*", entry.name)


def test_the_table_has_kernels_of_gate_and_up_and_of_one_weight():
    """An MLP needs one of each."""
    assert {variant.family == "plain" for variant in TILE_VARIANTS} == {True, False}


@pytest.mark.parametrize("family", ["dual", "plain"])
def test_the_table_has_a_family_without_and_with_a_cluster_of_two(family):
    assert {1, 2} <= {i.cluster_m for i in TILE_VARIANTS if i.family == family}


def test_the_package_has_been_built_from_this_table():
    """`python -m build_scripts` after a change of the table."""
    assert [kernel.name for kernel in variants()] == [one.name for one in ALL_VARIANTS]


def test_kernels_to_be_timed_are_not_in_the_package_but_for_the_one_they_are_compared_with():
    ours = [variant for variant in ABLATIONS if variant in TILE_VARIANTS]
    others = [variant for variant in ABLATIONS if variant not in TILE_VARIANTS]
    assert [variant.family for variant in ours] == ["sync"]
    assert [variant.family for variant in others] == ["sync-late", "sync-bare"]
    assert {dataclasses.replace(variant, family="sync") for variant in others} == {*ours}


@BY_NAME
def test_a_variant_takes_packed_weights_or_others(variant):
    packed = variant.family == "interleave"
    assert variant.layouts
    assert all((layout.packing > 0) == packed for layout in variant.layouts)


@pytest.mark.parametrize(("block_n", "layouts"), [(64, ("k", "n")), (96, ("k", "n")), (80, ("k",))])
def test_n_major_weights_need_columns_that_swizzled_boxes_tile(block_n, layouts):
    assert dataclasses.replace(DUAL, block_n=block_n).layouts == layouts


@BY_NAME
def test_a_variant_has_an_entry_per_weight_layout_type_of_elements_and_epilogue(variant):
    ablation = variant.family.startswith("sync-")
    elements = ["bfloat16"] if ablation else ["bfloat16", "float16"]
    alone = "none" if variant.family == "plain" else "silu"
    epilogues = [alone] if ablation else [alone, "general"]
    found = [(entry.layout, entry.w, entry.epilogue) for entry in variant.entries]
    assert found == list(itertools.product(variant.layouts, elements, epilogues))
    assert all(entry.x == entry.w == entry.out for entry in variant.entries)


@pytest.mark.parametrize(
    ("variant", "columns"),
    [
        # Gate's and up's columns side by side in a stage, or those of one weight.
        (DUAL, 2 * 96),
        (TileSource("dual", "pingpong", 128, 64, 2), 2 * 64),
        (TileSource("dual", "cooperative", 128, 112, 1), 2 * 112),
        (TileSource("sync", "pingpong", 128, 96, 1), 96),
        (TileSource("interleave", "pingpong", 128, 96, 1), 2 * 96),
        (TileSource("plain", "pingpong", 128, 192, 1), 192),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_shared_memory_is_stages_and_result_boxes_and_barriers(variant, columns):
    """Rows of 128 bytes, boxes of 64 rows for two consumers, full and empty barriers a stage."""
    stages = variant.stages * (variant.block_m + columns) * 128
    results = variant.out_stages * 2 * 64 * variant.boxes["out"][0] * 2
    barriers = 2 * variant.stages * 8
    assert variant.shared_bytes == -(-(stages + results + barriers) // 1024) * 1024


@BY_NAME
def test_shared_memory_is_at_most_that_of_a_multiprocessor(variant):
    assert variant.shared_bytes <= 227 * 1024


@BY_NAME
def test_products_and_stores_have_more_than_one_buffer(variant):
    """So that one is filled while another is read."""
    assert variant.stages >= 2
    assert variant.out_stages >= 2


# Widths of columns of tiles


@pytest.mark.parametrize(
    ("variant", "layout", "widths"),
    [
        (PAIR, "k", [96, 88, 80, 72, 64]),
        (TileSource("dual", "pingpong", 128, 80, 2), "k", [80, 72, 64]),
        (TileSource("dual", "pingpong", 128, 64, 2), "k", [64]),
        (TileSource("plain", "pingpong", 128, 192, 2), "k", [192, 184, 176, 168, 160]),
        (TileSource("interleave", "pingpong", 128, 96, 2), "p8", [96, 88, 80, 72, 64]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_columns_narrow_by_8_down_to_64_and_by_32_at_most(variant, layout, widths):
    assert variant.widths(layout) == widths


@pytest.mark.parametrize(("block_n", "widths"), [(96, [96, 64]), (128, [128]), (192, [192])])
def test_columns_of_n_major_weights_narrow_by_whole_boxes(block_n, widths):
    assert dataclasses.replace(PAIR, block_n=block_n).widths("n") == widths


@pytest.mark.parametrize(
    ("variant", "layout"),
    [
        (TileSource("dual", "cooperative", 128, 128, 2), "k"),
        (TileSource("interleave", "cooperative", 128, 128, 2), "p8"),
        (TileSource("interleave", "pingpong", 128, 96, 2), "p1"),
        (DUAL, "k"),
        (TileSource("plain", "pingpong", 128, 128, 1), "k"),
        *((variant, "k") for variant in ABLATIONS),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_only_pingpong_kernels_of_one_pass_in_clusters_have_more_than_one_width(variant, layout):
    assert variant.narrowing(layout) == 0
    assert variant.widths(layout) == [variant.block_n]


@pytest.mark.parametrize(
    ("variant", "widths"),
    [
        (TileSource("plain", "pingpong", 128, 128, 2), {32, 96, 104, 112, 120, 128}),
        (PAIR, {32, 128, 144, 160, 176, 192}),
        (TileSource("dual", "cooperative", 128, 128, 1), {32, 256}),
        (TileSource("dual", "cooperative", 128, 160, 1), {32, 160}),  # gate and up apart
        (TileSource("sync", "pingpong", 128, 96, 1), {32, 96}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_source_needs_the_products_of_every_width_and_those_that_lay_a_result_box_out(
    variant, widths
):
    assert variant.mma_widths() == widths


@BY_NAME
def test_a_source_asks_for_cutes_larger_header_where_it_needs_it_and_nowhere_else(variant):
    asked = (
        "#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED" in variant.translation_unit().splitlines()
    )
    assert asked == bool(variant.mma_widths() - set(COMMON_WIDTHS))


# Boxes


@BY_NAME
def test_boxes_of_the_result_are_as_wide_as_their_swizzle_span_and_no_wider_than_any_tile(variant):
    columns, rows, span = variant.boxes["out"]
    assert (columns, rows, span) == (32, 64, 64)
    assert variant.warpgroup_m % rows == 0
    assert all(columns <= min(variant.widths(layout)) for layout in variant.layouts)


@BY_NAME
def test_a_box_of_x_has_all_rows_of_the_tile(variant):
    assert variant.boxes["x"] == [64, variant.block_m, 128]


@BY_NAME
def test_raster_rows_are_positive(variant):
    """The scheduler divides by them."""
    assert variant.raster_rows >= 1


@pytest.mark.parametrize(
    ("family", "cluster_m", "slices"),
    [("dual", 1, 1), ("dual", 2, 1), ("dual", 4, 4), ("plain", 1, 1), ("plain", 2, 2)],
)
def test_ctas_of_a_cluster_load_a_slice_of_each_weight_but_two_load_gate_and_up(
    family, cluster_m, slices
):
    alone = dataclasses.replace(DUAL, family=family)
    variant = dataclasses.replace(alone, cluster_m=cluster_m)
    expected = {
        name: [inner, rows // slices if name.startswith("weight") else rows, span]
        for name, (inner, rows, span) in alone.boxes.items()
    }
    assert variant.slices == slices
    assert variant.boxes == expected


@BY_NAME
def test_there_is_a_box_for_every_operand_and_layout(variant):
    weights = {f"weight_{layout}" for layout in variant.layouts}
    assert set(variant.boxes) == {"x", "out"} | weights
