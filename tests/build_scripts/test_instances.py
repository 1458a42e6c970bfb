"""The table of kernel instances, and what follows from a row."""

from __future__ import annotations

import dataclasses
import re

import pytest

from build_scripts.build import KERNELS
from build_scripts.variants import ABLATIONS, ALL_INSTANCES, INSTANCES
from build_scripts.variants.elements import MAJORS, PACKINGS
from build_scripts.variants.tile import COMMON_WIDTHS, FAMILIES, Instance
from cuswiglu.kernels.manifest import variants
from tests.helpers.host_sources import entries_of

ALL = tuple(dict.fromkeys((*INSTANCES, *ABLATIONS)))
BY_NAME = pytest.mark.parametrize("instance", ALL, ids=lambda instance: instance.name)
DUAL = Instance("dual", "pingpong", 128, 96, 1)
PAIR = dataclasses.replace(DUAL, cluster_m=2)
TRAITS = (KERNELS / "impls/sm90_tile_traits.cuh").read_text()


def test_names_and_entries_are_unique():
    for table in (ALL_INSTANCES, ABLATIONS):
        names = [instance.name for instance in table]
        entries = [instance.entry(key) for instance in table for key in instance.keys]
        assert len(set(names)) == len(names)
        assert len(set(entries)) == len(entries)


@BY_NAME
def test_entries_are_names_of_c_functions(instance):
    for key in instance.keys:
        assert re.fullmatch(r"[a-z]\w*", instance.entry(key))


def test_families_are_those_of_the_sources():
    declared = re.search(r"^enum class Family \{(.*)\};$", TRAITS, re.MULTILINE)[1]
    assert set(FAMILIES.values()) == {name.strip() for name in declared.split(",")}
    assert {instance.family for instance in ALL} <= set(FAMILIES)


def test_the_table_has_kernels_of_gate_and_up_and_of_one_weight():
    """An MLP needs one of each."""
    assert {instance.family == "plain" for instance in INSTANCES} == {True, False}


@pytest.mark.parametrize("family", ["dual", "plain"])
def test_the_table_has_a_family_without_and_with_a_cluster_of_two(family):
    assert {1, 2} <= {i.cluster_m for i in INSTANCES if i.family == family}


def test_the_package_has_been_built_from_this_table():
    """`python -m build_scripts` after a change of the table."""
    assert [kernel.name for kernel in variants()] == [one.name for one in ALL_INSTANCES]


def test_kernels_to_be_timed_are_not_in_the_package_but_for_the_one_they_are_compared_with():
    ours = [instance for instance in ABLATIONS if instance in INSTANCES]
    others = [instance for instance in ABLATIONS if instance not in INSTANCES]
    assert [instance.family for instance in ours] == ["sync"]
    assert [instance.family for instance in others] == ["sync-late", "sync-bare"]
    assert {dataclasses.replace(instance, family="sync") for instance in others} == {*ours}


@BY_NAME
def test_an_instance_takes_packed_weights_or_others(instance):
    packed = instance.family == "interleave"
    assert instance.majors
    assert set(instance.majors) <= (set(PACKINGS) if packed else set(MAJORS) - set(PACKINGS))


@pytest.mark.parametrize(("block_n", "majors"), [(64, ("k", "n")), (96, ("k", "n")), (80, ("k",))])
def test_n_major_weights_need_columns_that_swizzled_boxes_tile(block_n, majors):
    assert dataclasses.replace(DUAL, block_n=block_n).majors == majors


@BY_NAME
def test_the_source_has_an_entry_per_weight_layout_type_of_elements_and_extras(instance):
    entries = entries_of(instance.source(), "impls/sm90_tile.cuh", "CUSWIGLU_ENTRY")
    assert [entry.pop("NAME") for entry in entries] == [*map(instance.entry, instance.keys)]
    layouts = [key.partition("_")[0] for key in instance.keys]
    assert [entry.pop("MAJOR") for entry in entries] == [MAJORS[layout] for layout in layouts]
    for entry, key, major in zip(entries, instance.keys, layouts, strict=True):
        half = "cutlass::half_t" if "_f16" in key else "cutlass::bfloat16_t"
        assert entry.pop("ELEMENT") == half
        assert entry.pop("EXTRAS") == str("_any" in key).lower()
        assert entry.pop("PACKING") == str(PACKINGS.get(major, 0))
        assert entry.pop("NARROWING") == str(instance.narrowing(major))
        assert entry.pop("NARROWEST") == str(instance.widths(major)[-1])
        assert entry.pop("FITTED") == str(instance.fitted(major)).lower()
        assert entry.pop("FAMILY") == FAMILIES[instance.family]
        assert entry.pop("SCHEDULE") == instance.schedule.capitalize()
        assert {"BLOCK_M", "BLOCK_N", "CLUSTER_M", "STAGES"} <= set(entry)
        assert entry == {name: str(getattr(instance, name.lower())) for name in entry}


@pytest.mark.parametrize(
    ("instance", "columns"),
    [
        # Gate's and up's columns side by side in a stage, or those of one weight.
        (DUAL, 2 * 96),
        (Instance("dual", "pingpong", 128, 64, 2), 2 * 64),
        (Instance("dual", "cooperative", 128, 112, 1), 2 * 112),
        (Instance("sync", "pingpong", 128, 96, 1), 96),
        (Instance("interleave", "pingpong", 128, 96, 1), 2 * 96),
        (Instance("plain", "pingpong", 128, 192, 1), 192),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_shared_memory_is_stages_and_result_boxes_and_barriers(instance, columns):
    """Rows of 128 bytes, boxes of 64 rows for two consumers, full and empty barriers a stage."""
    stages = instance.stages * (instance.block_m + columns) * 128
    results = instance.out_stages * 2 * 64 * instance.boxes["out"][0] * 2
    barriers = 2 * instance.stages * 8
    assert instance.shared_bytes == -(-(stages + results + barriers) // 1024) * 1024


@BY_NAME
def test_shared_memory_is_at_most_that_of_a_multiprocessor(instance):
    assert instance.shared_bytes <= 227 * 1024


@BY_NAME
def test_products_and_stores_have_more_than_one_buffer(instance):
    """So that one is filled while another is read."""
    assert instance.stages >= 2
    assert instance.out_stages >= 2


# Widths of columns of tiles


@pytest.mark.parametrize(
    ("instance", "major", "widths"),
    [
        (PAIR, "k", [96, 88, 80, 72, 64]),
        (Instance("dual", "pingpong", 128, 80, 2), "k", [80, 72, 64]),
        (Instance("dual", "pingpong", 128, 64, 2), "k", [64]),
        (Instance("plain", "pingpong", 128, 192, 2), "k", [192, 184, 176, 168, 160]),
        (Instance("interleave", "pingpong", 128, 96, 2), "p8", [96, 88, 80, 72, 64]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_columns_narrow_by_8_down_to_64_and_by_32_at_most(instance, major, widths):
    assert instance.widths(major) == widths


@pytest.mark.parametrize(("block_n", "widths"), [(96, [96, 64]), (128, [128]), (192, [192])])
def test_columns_of_n_major_weights_narrow_by_whole_boxes(block_n, widths):
    assert dataclasses.replace(PAIR, block_n=block_n).widths("n") == widths


@pytest.mark.parametrize(
    ("instance", "major"),
    [
        (Instance("dual", "cooperative", 128, 128, 2), "k"),
        (Instance("interleave", "cooperative", 128, 128, 2), "p8"),
        (Instance("interleave", "pingpong", 128, 96, 2), "p1"),
        (DUAL, "k"),
        (Instance("plain", "pingpong", 128, 128, 1), "k"),
        *((instance, "k") for instance in ABLATIONS),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_only_pingpong_kernels_of_one_pass_in_clusters_have_more_than_one_width(instance, major):
    assert instance.narrowing(major) == 0
    assert instance.widths(major) == [instance.block_n]


@pytest.mark.parametrize(
    ("instance", "widths"),
    [
        (Instance("plain", "pingpong", 128, 128, 2), {32, 96, 104, 112, 120, 128}),
        (PAIR, {32, 128, 144, 160, 176, 192}),
        (Instance("dual", "cooperative", 128, 128, 1), {32, 256}),
        (Instance("dual", "cooperative", 128, 160, 1), {32, 160}),  # gate and up apart
        (Instance("sync", "pingpong", 128, 96, 1), {32, 96}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_source_needs_the_products_of_every_width_and_those_that_lay_a_result_box_out(
    instance, widths
):
    assert instance.mma_widths() == widths


@BY_NAME
def test_a_source_asks_for_cutes_larger_header_where_it_needs_it_and_nowhere_else(instance):
    asked = "#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED" in instance.source().splitlines()
    assert asked == bool(instance.mma_widths() - set(COMMON_WIDTHS))


# Boxes


@BY_NAME
def test_boxes_of_the_result_are_as_wide_as_their_swizzle_span_and_no_wider_than_any_tile(instance):
    columns, rows, span = instance.boxes["out"]
    assert (columns, rows, span) == (32, 64, 64)
    assert instance.warpgroup_m % rows == 0
    assert all(columns <= min(instance.widths(major)) for major in instance.majors)


@BY_NAME
def test_a_box_of_x_has_all_rows_of_the_tile(instance):
    assert instance.boxes["x"] == [64, instance.block_m, 128]


@BY_NAME
def test_raster_rows_are_positive(instance):
    """The scheduler divides by them."""
    assert instance.raster_rows >= 1


@pytest.mark.parametrize(
    ("family", "cluster_m", "slices"),
    [("dual", 1, 1), ("dual", 2, 1), ("dual", 4, 4), ("plain", 1, 1), ("plain", 2, 2)],
)
def test_ctas_of_a_cluster_load_a_slice_of_each_weight_but_two_load_gate_and_up(
    family, cluster_m, slices
):
    alone = dataclasses.replace(DUAL, family=family)
    instance = dataclasses.replace(alone, cluster_m=cluster_m)
    expected = {
        name: [inner, rows // slices if name.startswith("weight") else rows, span]
        for name, (inner, rows, span) in alone.boxes.items()
    }
    assert instance.slices == slices
    assert instance.boxes == expected


@BY_NAME
def test_there_is_a_box_for_every_operand_and_layout(instance):
    weights = {f"weight_{major}" for major in instance.majors}
    assert set(instance.boxes) == {"x", "out"} | weights
