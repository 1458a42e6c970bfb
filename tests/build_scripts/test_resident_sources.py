"""The table of resident kernels, and what follows from a row."""

from __future__ import annotations

import re

from tests.helpers.resident_kernels import KERNEL, SOURCE


def test_a_name_says_family_schedule_tile_and_cluster():
    assert SOURCE.name == "dual_resident_64x64_1x1"


def test_an_entry_is_named_by_its_variant_layout_elements_and_epilogue():
    behind = ["", "_any", "_f16", "_f16_any"]
    expected = [f"{SOURCE.name}_{layout}{end}" for layout in "kn" for end in behind]
    assert [entry.name for entry in SOURCE.entries] == expected


def test_bytes_beside_weights_and_stages_hold_the_results_boxes_biases_and_barriers():
    """A tile of the result for each of four consumers; two barriers a stage, and the weights'."""
    results = 4 * 64 * 64 * 2
    biases = KERNEL.max_slices * 2 * 64 * 2
    barriers = 8 * (2 * KERNEL.max_stages + 1)
    assert KERNEL.fixed_bytes == -(-(results + biases + barriers) // 1024) * 1024


def test_the_source_has_the_entries_in_order_each_with_its_element_layout_and_epilogue():
    source = SOURCE.translation_unit()
    traits = re.findall(
        r"using (\w+)_traits = cuswiglu::resident::ResidentTraits<"
        r"cutlass::(\w+), cuswiglu::Major::(\w+)>;",
        source,
    )
    halves, majors = {"bfloat16": "bfloat16_t", "float16": "half_t"}, {"k": "K", "n": "MN"}
    assert traits == [(e.name, halves[e.w], majors[e.layout]) for e in SOURCE.entries]
    assert re.findall(r"CUSWIGLU_ENTRY\((\w+), (\w+), (\w+), (\d)\)", source) == [
        (e.name, f"{e.name}_traits", str(e.epilogue == "general").lower(), "1")
        for e in SOURCE.entries
    ]


def test_the_compiler_checks_what_the_library_computes_with_for_every_entry():
    checked = {
        "kThreads": KERNEL.threads,
        "kBlockM": KERNEL.block_m,
        "kBlockN": KERNEL.block_n,
        "kConsumers": 4,
        "kMaxStages": KERNEL.max_stages,
        "kMaxSlices": KERNEL.max_slices,
        "kOutRows": dict(KERNEL.boxes)["out"][1],
        "kFixedBytes": KERNEL.fixed_bytes,
        "kStepElementsX * 2": KERNEL.x_bytes,
        "kStepElementsB * 2": KERNEL.weight_bytes,
        "kBoxN": dict(KERNEL.boxes)["weight_n"][0],
    }
    found = re.findall(
        r'static_assert\((\w+)_traits::([\w *]+) == (\d+), "manifest"\);', SOURCE.translation_unit()
    )
    assert found == [
        (entry.name, name, str(value))
        for entry in SOURCE.entries
        for name, value in checked.items()
    ]


def test_entries_take_the_arguments_in_the_declared_order():
    declared = re.search(r"NAME\((.*?)\) \{", SOURCE.translation_unit()).group(1)
    names = [parameter.split()[-1] for parameter in declared.split(", ")]
    assert names == [name for name, _ in SOURCE.arguments]
