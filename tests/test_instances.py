"""The table of kernel instances, and what follows from a row."""

from __future__ import annotations

import dataclasses
import re

import pytest

from build_scripts.build import KERNELS
from build_scripts.instances import INSTANCES, MAJORS, PACKINGS, Instance
from cuswiglu.variant import variants

BY_NAME = pytest.mark.parametrize("instance", INSTANCES, ids=lambda instance: instance.name)
DUAL = Instance("dual", "pingpong", 128, 96, 1, 1)


def test_names_and_entries_are_unique():
    names = [instance.name for instance in INSTANCES]
    entries = [instance.entry(major) for instance in INSTANCES for major in instance.majors]
    assert len(set(names)) == len(names)
    assert len(set(entries)) == len(entries)


def test_the_table_has_kernels_of_gate_and_up_and_of_one_weight():
    """An MLP needs one of each."""
    assert {instance.family == "plain" for instance in INSTANCES} == {True, False}


@pytest.mark.parametrize("family", ["dual", "plain"])
def test_the_table_has_a_family_without_and_with_a_cluster_of_two(family):
    sizes = {i.cluster_m * i.cluster_n for i in INSTANCES if i.family == family}
    assert {1, 2} <= sizes


def test_the_package_has_been_built_from_this_table():
    """`python -m build_scripts` after a change of the table."""
    assert [kernel.name for kernel in variants()] == [instance.name for instance in INSTANCES]


@BY_NAME
def test_an_instance_takes_packed_weights_or_others(instance):
    packed = instance.family == "interleave"
    assert instance.majors
    assert set(instance.majors) <= (set(PACKINGS) if packed else set(MAJORS) - set(PACKINGS))


@pytest.mark.parametrize(("block_n", "majors"), [(64, ("k", "n")), (96, ("k", "n")), (80, ("k",))])
def test_n_major_weights_need_columns_that_swizzled_boxes_tile(block_n, majors):
    assert dataclasses.replace(DUAL, block_n=block_n).majors == majors


def entries_of(source):
    """The macro calls of a translation unit: parameter of the macro -> argument."""
    macro = (KERNELS / "kernel.cuh").read_text().replace("\\\n", " ")
    names = re.search(r"#define CUSWIGLU_ENTRY\(([^)]*)\)", macro)[1]
    calls = re.findall(r"^CUSWIGLU_ENTRY\((.*)\)$", source, re.MULTILINE)
    split = re.compile(r"\s*,\s*").split
    return [dict(zip(split(names.strip()), split(call), strict=True)) for call in calls]


@BY_NAME
def test_the_source_has_one_entry_per_weight_layout(instance):
    entries = entries_of(instance.source())
    assert [entry.pop("NAME") for entry in entries] == [*map(instance.entry, instance.majors)]
    assert [entry.pop("MAJOR") for entry in entries] == [MAJORS[m] for m in instance.majors]
    for entry, major in zip(entries, instance.majors, strict=True):
        assert entry.pop("PACKING") == str(PACKINGS.get(major, 0))
        assert entry.pop("FAMILY") == instance.family.capitalize()
        assert entry.pop("SCHEDULE") == instance.schedule.capitalize()
        assert {"BLOCK_M", "BLOCK_N", "CLUSTER_M", "CLUSTER_N", "STAGES"} <= set(entry)
        assert entry == {name: str(getattr(instance, name.lower())) for name in entry}


@pytest.mark.parametrize(
    ("instance", "columns"),
    [
        # Gate's and up's columns side by side in a stage, or those of one weight.
        (DUAL, 2 * 96),
        (Instance("dual", "pingpong", 128, 64, 2, 1), 2 * 64),
        (Instance("dual", "cooperative", 128, 112, 1, 1), 2 * 112),
        (Instance("sync", "pingpong", 128, 96, 1, 1), 96),
        (Instance("interleave", "pingpong", 128, 96, 1, 1), 2 * 96),
        (Instance("plain", "pingpong", 128, 192, 1, 1), 192),
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


@pytest.mark.parametrize(
    ("schedule", "block_m", "splits"),
    [
        ("pingpong", 128, True),
        ("pingpong", 64, False),
        ("cooperative", 128, False),
        ("cooperative", 256, True),
    ],
)
def test_a_tile_splits_where_each_half_has_the_64_rows_of_a_wgmma(schedule, block_m, splits):
    """In pingpong a consumer has all rows of the tile, in cooperative half of them."""
    assert Instance("dual", schedule, block_m, 64, 1, 1).splits == splits


@pytest.mark.parametrize(
    ("block_n", "width", "span"), [(64, 32, 64), (96, 32, 64), (128, 32, 64), (72, 72, 16)]
)
def test_boxes_of_the_result_are_swizzled_or_the_whole_width(block_n, width, span):
    instance = Instance("dual", "pingpong", 128, block_n, 1, 1)
    assert (instance.boxes["out"][0], instance.boxes["out"][2]) == (width, span)
    assert block_n % width == 0


@BY_NAME
def test_raster_rows_are_positive(instance):
    """The scheduler divides by them."""
    assert instance.raster_rows >= 1


def test_a_cluster_loads_each_operand_in_slices():
    rows = {name: box[1] for name, box in DUAL.boxes.items()}
    along_m = dataclasses.replace(DUAL, cluster_m=2, cluster_n=1)
    along_n = dataclasses.replace(DUAL, cluster_m=1, cluster_n=2)
    weights = {name: count // 2 for name, count in rows.items() if name.startswith("weight")}
    assert weights
    assert {name: box[1] for name, box in along_m.boxes.items()} == rows | weights
    assert {name: box[1] for name, box in along_n.boxes.items()} == rows | {"x": rows["x"] // 2}


@BY_NAME
def test_there_is_a_box_for_every_operand_and_layout(instance):
    weights = {f"weight_{major}" for major in instance.majors}
    assert set(instance.boxes) == {"x", "out"} | weights
