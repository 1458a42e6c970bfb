"""The table of kernel instances, and what follows from a row."""

from __future__ import annotations

import dataclasses

import pytest

from build_scripts.instances import INSTANCES, Instance
from cuswiglu.variant import variants

BY_NAME = pytest.mark.parametrize("instance", INSTANCES, ids=lambda instance: instance.name)


def test_names_and_entries_are_unique():
    names = [instance.name for instance in INSTANCES]
    entries = [instance.entry(major) for instance in INSTANCES for major in ("k", "n")]
    assert len(set(names)) == len(names)
    assert len(set(entries)) == len(entries)


@pytest.mark.parametrize(
    ("schedule", "block_m", "block_n"),
    [("pingpong", 128, 96), ("pingpong", 128, 64), ("cooperative", 128, 128)],
)
def test_the_table_has_each_tile_without_and_with_a_cluster_of_two(schedule, block_m, block_n):
    sizes = {
        instance.cluster_m * instance.cluster_n
        for instance in INSTANCES
        if (instance.schedule, instance.block_m, instance.block_n) == (schedule, block_m, block_n)
    }
    assert {1, 2} <= sizes


def test_the_package_has_been_built_from_this_table():
    """`python -m build_scripts` after a change of the table."""
    assert [kernel.name for kernel in variants()] == [instance.name for instance in INSTANCES]


@BY_NAME
def test_the_source_has_one_entry_per_weight_layout(instance):
    calls = [line for line in instance.source().splitlines() if "ENTRY(" in line]
    arguments = [line[line.index("(") + 1 : line.rindex(")")].split(", ") for line in calls]
    assert [row[0] for row in arguments] == [instance.entry("k"), instance.entry("n")]
    assert [row[7] for row in arguments] == ["K", "MN"]
    for row in arguments:
        assert row[1] == instance.schedule.capitalize()
        assert row[2:7] == [
            str(getattr(instance, field))
            for field in ("block_m", "block_n", "cluster_m", "cluster_n", "stages")
        ]
        assert row[8] == str(instance.shared_bytes)


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        # stages * (block_m + 2 block_n) rows of 128 bytes, the result tiles of two consumers, and
        # 8 bytes a barrier (full and empty a stage, two turns); rounded up to 1024.
        (Instance("pingpong", 128, 96, 1, 1, 4, 16), 4 * 320 * 128 + 2 * 128 * 96 * 2 + 1024),
        (Instance("pingpong", 128, 64, 2, 1, 6, 16), 6 * 256 * 128 + 2 * 128 * 64 * 2 + 1024),
        (Instance("cooperative", 128, 128, 1, 1, 4, 16), 4 * 384 * 128 + 2 * 64 * 128 * 2 + 1024),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_shared_memory_is_stages_and_result_tiles_and_barriers(instance, expected):
    assert instance.shared_bytes == expected


@pytest.mark.parametrize(("block_n", "box"), [(64, 64), (128, 64), (96, 32), (80, 16)])
def test_boxes_of_the_result_are_as_wide_as_tile_its_columns(block_n, box):
    instance = Instance("pingpong", 128, block_n, 1, 1, stages=2, raster_rows=16)
    assert instance.box_n == box
    assert instance.boxes["out"][0] == box


@BY_NAME
def test_raster_rows_are_positive(instance):
    """The scheduler divides by them."""
    assert instance.raster_rows >= 1


def test_a_cluster_loads_each_operand_in_slices():
    alone = INSTANCES[0]
    along_m = dataclasses.replace(alone, cluster_m=2, cluster_n=1)
    along_n = dataclasses.replace(alone, cluster_m=1, cluster_n=2)
    rows = {name: box[1] for name, box in alone.boxes.items()}
    assert {name: box[1] for name, box in along_m.boxes.items()} == rows | {
        "weight_k": rows["weight_k"] // 2,
        "weight_n": rows["weight_n"] // 2,
    }
    assert {name: box[1] for name, box in along_n.boxes.items()} == rows | {"x": rows["x"] // 2}
