"""The manifest and the cubins are what they claim; a damaged one says how to rebuild."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import zlib
from pathlib import Path

import pytest

import cuswiglu
from build_scripts.compile import SPILL_BYTES
from build_scripts.variants import ALL_VARIANTS
from cuswiglu import KernelsUnavailableError
from cuswiglu.kernels.manifest import (
    CUBINS,
    MANIFEST_FORMAT,
    REBUILD,
    cubin,
    read_manifest,
    variants,
)
from tests.helpers import cubin_files
from tests.helpers.compiled import DECODE, SWAPPED, TILES, name_of
from tests.helpers.cubin_files import KERNELS

NAMES = list(KERNELS)
TILE_NAMES = [kernel.name for kernel in TILES]
DECODE_NAMES = [kernel.name for kernel in DECODE]


def entries_of(kernels):
    return [
        pytest.param(kernel.name, entry, id=entry.name)
        for kernel in kernels
        for entry in kernel.entries
    ]


def code_of(name, entry):
    """An entry's instructions."""
    return cubin_files.sass(name)[entry.name]


def row_of(name, entry):
    """An entry's part of the manifest."""
    (row,) = (row for row in ROWS[name]["entries"] if row["name"] == entry.name)
    return row


ENTRIES, TILE_ENTRIES, SWAPPED_ENTRIES, DECODE_ENTRIES = map(
    entries_of, (variants(), TILES, SWAPPED, DECODE)
)
SOURCE = {source.name: source for source in ALL_VARIANTS}
ROWS = {row["name"]: row for row in read_manifest()["variants"]}


# What is built


def test_variants_lists_every_row_of_the_manifest():
    assert [kernel.name for kernel in cuswiglu.variants()] == list(ROWS)


def test_the_manifest_says_what_it_was_built_with():
    assert read_manifest()["arch"] == "sm_90a"
    toolchain = read_manifest()["toolchain"]
    assert {"nvrtc", "nvjitlink", "cutlass", "cuda_core"} <= set(toolchain)
    assert toolchain["nvrtc"].startswith("12.9.")


def test_the_folder_holds_the_cubins_of_the_manifest_and_no_others():
    assert {str(path) for path in CUBINS.glob("*.cubin")} == {k.cubin for k in variants()}


@pytest.mark.parametrize("name", TILE_NAMES)
def test_the_name_is_family_schedule_tile_cluster(name):
    kernel = KERNELS[name]
    tile = f"{kernel.block_m}x{kernel.block_n}"
    assert name == f"{kernel.family}_{kernel.schedule}_{tile}_{kernel.cluster_m}x1"


@pytest.mark.parametrize("kernel", SWAPPED, ids=name_of)
def test_the_name_of_a_kernel_of_exchanged_operands_has_its_most_tokens(kernel):
    tile = f"{kernel.most}x{kernel.block_n}"
    assert kernel.name == f"{kernel.family}_pingpong_{tile}_1x{kernel.cluster_n}"


@pytest.mark.parametrize("name", DECODE_NAMES)
def test_the_name_of_a_decode_kernel_is_family_tokens(name):
    assert name == f"{KERNELS[name].family}_{KERNELS[name].tokens}"


@pytest.mark.parametrize("name", NAMES)
def test_the_hash_is_that_of_the_file(name):
    code = Path(KERNELS[name].cubin).read_bytes()
    assert hashlib.sha256(code).hexdigest() == KERNELS[name].sha256
    assert len(code) == ROWS[name]["bytes"]
    assert cubin(KERNELS[name]) == code


def test_all_cubins_fit_in_a_wheel_of_5_megabytes():
    assert sum(len(zlib.compress(cubin(kernel))) for kernel in variants()) < 5_000_000


@pytest.mark.parametrize("name", NAMES)
def test_a_cubin_has_the_elf_abi_of_cuda_12(name):
    """OS/ABI 0x33, version 7: what drivers from 525 on load. CUDA 13 writes 0x41, 8."""
    code = cubin(KERNELS[name])
    assert (code[:4], code[7], code[8]) == (b"\x7fELF", 0x33, 7)
    assert cubin_files.elf(name)["e_machine"] == "EM_CUDA"


@pytest.mark.parametrize("name", NAMES)
def test_a_cubin_has_the_entries_of_the_table_and_no_others(name):
    expected = {entry.name for entry in SOURCE[name].entries}
    assert {entry.name for entry in KERNELS[name].entries} == expected
    assert set(cubin_files.functions(name)) == expected


#: Kind of an argument -> its bytes in a kernel's parameters.
BYTES = {"tensor_map": 128, "pointer": 8, "int32": 4, "int64": 8, "float32": 4}


@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_an_entry_takes_the_arguments_that_the_manifest_lists(name, entry):
    found = cubin_files.parameter_bytes(name, entry.name)
    assert found == [BYTES[kind] for _, kind in KERNELS[name].arguments]


@pytest.mark.codegen
@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_an_entry_uses_tensor_cores_and_tma(name, entry):
    code = code_of(name, entry)
    assert set(re.findall(r"\bHGMMA\.\S*F32(\.BF16)?", code)) == {
        "" if entry.w == "float16" else ".BF16"
    }
    assert re.search(r"\bUTMALDG\.2D", code)
    # A decode kernel stores each thread's own elements.
    assert bool(re.search(r"\bUTMASTG\.2D", code)) == (name not in DECODE_NAMES)


@pytest.mark.codegen
@pytest.mark.parametrize(("name", "entry"), DECODE_ENTRIES)
def test_the_products_of_a_decode_kernel_have_its_tokens_as_columns(name, entry):
    code = code_of(name, entry)
    found = {int(width) for width in re.findall(r"\bHGMMA\.64x(\d+)x16\b", code)}
    assert found == {KERNELS[name].tokens}


@pytest.mark.codegen
@pytest.mark.parametrize(("name", "entry"), SWAPPED_ENTRIES)
def test_an_entry_of_exchanged_operands_has_products_of_every_count_of_tokens(name, entry):
    code, kernel = code_of(name, entry), KERNELS[name]
    found = {int(width) for width in re.findall(r"\bHGMMA\.64x(\d+)x16\b", code)}
    assert found == set(range(kernel.fewest, kernel.most + 1, 8))
    assert ("UTMALDG.2D.MULTICAST" in code) == (kernel.sharers > 1)


@pytest.mark.codegen
@pytest.mark.parametrize(("name", "entry"), TILE_ENTRIES)
def test_loads_are_multicast_in_clusters_and_nowhere_else(name, entry):
    code = code_of(name, entry)
    assert ("UTMALDG.2D.MULTICAST" in code) == (KERNELS[name].cluster_m > 1)


@pytest.mark.codegen
@pytest.mark.parametrize(("name", "entry"), TILE_ENTRIES)
def test_an_entry_has_products_of_every_width_that_a_column_can_have(name, entry):
    """In columns of a WGMMA, 256 at most: gate's and up's together where both fit."""
    code = code_of(name, entry)
    found = {int(width) for width in re.findall(r"\bHGMMA\.64x(\d+)x16\b", code)}
    each = SOURCE[name].columns // KERNELS[name].block_n
    widths = dict(KERNELS[name].widths)[entry.layout]
    assert found == {each * width if each * width <= 256 else width for width in widths}


@pytest.mark.codegen
@pytest.mark.parametrize(("name", "entry"), TILE_ENTRIES)
def test_an_entry_stores_each_width_in_boxes_of_its_own(name, entry):
    """Loops over boxes are unrolled, 64 rows by 32 columns each; for GELU, ReLU and the others."""
    code = code_of(name, entry)
    row_blocks = SOURCE[name].warpgroup_m // 64
    boxes = [row_blocks * -(-width // 32) for width in dict(KERNELS[name].widths)[entry.layout]]
    times = 3 if entry.epilogue == "general" and KERNELS[name].gated else 1
    assert len(re.findall(r"\bUTMASTG\.2D", code)) == times * sum(boxes)


@pytest.mark.codegen
@pytest.mark.parametrize(("name", "entry"), TILE_ENTRIES)
def test_an_element_is_activated_once_though_two_boxes_may_store_it(name, entry):
    """One exponential each: of 64 rows, a thread has half as many elements as there are columns.

    A general epilogue has GELU's and those of the coefficients; ReLU needs none.
    """
    code = code_of(name, entry)
    row_blocks = SOURCE[name].warpgroup_m // 64
    widths = dict(KERNELS[name].widths)[entry.layout]
    times = 2 if entry.epilogue == "general" else 1
    each = [times * row_blocks * width // 2 for width in widths]
    expected = sum(each) if KERNELS[name].gated else 0
    assert len(re.findall(r"\bMUFU\.EX2\b", code)) == expected


@pytest.mark.codegen
@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_an_entry_spills_nothing_and_a_general_epilogue_a_register_or_two(name, entry):
    spilled = re.findall(r"\b(?:STL|LDL)\b", code_of(name, entry))
    frame = cubin_files.per_function(name, cubin_files.FRAME_SIZE)[entry.name]
    row = row_of(name, entry)
    if entry.epilogue != "general":
        assert (spilled, frame, row["spill_bytes"]) == ([], 0, 0)
    assert frame <= SPILL_BYTES
    assert row["spill_bytes"] <= 2 * SPILL_BYTES


@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_registers_are_those_of_the_cubin(name, entry):
    found = cubin_files.per_function(name, cubin_files.REGISTER_COUNT)
    assert row_of(name, entry)["registers"] == found[entry.name]


@pytest.mark.parametrize("name", NAMES)
def test_a_cta_fits_a_multiprocessor(name):
    kernel = KERNELS[name]
    assert kernel.registers * kernel.threads <= 65536
    assert kernel.threads <= 1024
    assert 0 < kernel.most_shared <= 232448


@pytest.mark.parametrize("name", DECODE_NAMES)
def test_as_many_ctas_of_a_decode_kernel_find_registers_as_it_says(name):
    """Registers are given to warps, in units of 8 a thread."""
    kernel = KERNELS[name]
    registers = -(-kernel.registers // 8) * 8
    assert kernel.ctas * kernel.threads * registers <= 65536


@pytest.mark.codegen
@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_an_entry_waits_for_the_work_ahead_and_lets_the_work_behind_start(name, entry):
    """Programmatic dependent launch: griddepcontrol, as SASS has it."""
    code = code_of(name, entry)
    assert re.search(r"\bACQBULK\b", code)
    assert re.search(r"\bPREEXIT\b", code)


@pytest.mark.parametrize("name", TILE_NAMES)
def test_tma_boxes_tile_the_block(name):
    kernel = KERNELS[name]
    boxes = dict(kernel.boxes)
    assert set(boxes) == {"x", "out"} | {f"weight_{layout}" for layout in kernel.layouts}
    assert boxes["x"] == (kernel.block_k, kernel.block_m, 128)
    assert kernel.block_m % boxes["out"][1] == 0
    slices = SOURCE[name].slices
    for layout in kernel.layouts:
        box = boxes[f"weight_{layout}"]
        if layout == "n":
            assert box[1] == kernel.block_k // slices
            assert all(width % box[0] == 0 for width in dict(kernel.widths)[layout])
        else:  # along K; packed weights have gate's and up's columns in one tile
            columns = kernel.block_n * (2 if kernel.family == "interleave" else 1)
            assert box == (kernel.block_k, columns // slices, 128)


@pytest.mark.parametrize("name", TILE_NAMES)
def test_a_tma_box_is_as_wide_as_its_swizzle_span(name):
    for columns, rows, span in dict(KERNELS[name].boxes).values():
        assert span in (32, 64, 128)
        assert 2 * columns == span
        assert 1 <= rows <= 256


@pytest.mark.parametrize("name", TILE_NAMES)
def test_widths_of_columns_are_what_the_table_says(name):
    source = SOURCE[name]
    expected = {layout: tuple(source.widths(layout)) for layout in source.layouts}
    assert dict(KERNELS[name].widths) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_knows_where_its_cubin_is(name):
    assert KERNELS[name].cubin == str(CUBINS / ROWS[name]["cubin"])
    assert Path(KERNELS[name].cubin).is_absolute()


# What is damaged


@pytest.fixture
def folder(tmp_path):
    """A copy of the built folder, to damage; small but for one cubin."""
    copy = tmp_path / "cubins"
    copy.mkdir()
    shutil.copy(CUBINS / "manifest.json", copy)
    shutil.copy(variants()[0].cubin, copy)
    return copy


def moved(folder):
    """The package's kernels as if they were in another folder."""
    return tuple(
        dataclasses.replace(kernel, cubin=str(folder / f"{kernel.name}.cubin"))
        for kernel in variants()
    )


def test_another_folder_is_read_with_the_cubins_that_are_there(folder):
    assert variants(folder) == moved(folder)
    assert cubin(variants(folder)[0]) == cubin(variants()[0])


@pytest.mark.parametrize("what", ["manifest.json", "folder"])
def test_a_missing_manifest_says_how_to_rebuild(folder, what):
    if what == "folder":
        shutil.rmtree(folder)
    else:
        (folder / what).unlink()
    with pytest.raises(KernelsUnavailableError) as caught:
        variants(folder)
    assert str(folder / "manifest.json") in str(caught.value)
    assert "missing" in str(caught.value)
    assert REBUILD in str(caught.value)


def _row(change, kernel=TILES[1]):
    """Damage a row of a manifest."""

    def damage(text):
        content = json.loads(text)
        (row,) = (one for one in content["variants"] if one["name"] == kernel.name)
        change(row)
        return json.dumps(content)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "null",
        lambda text: "{}",
        lambda text: text.replace(f'"format": {MANIFEST_FORMAT}', '"format": 1'),
        lambda text: text.replace('"variants"', '"kernels"'),
        _row(lambda row: row.pop("threads")),
        _row(lambda row: row.pop("arguments")),
        _row(lambda row: row["entries"][0].pop("epilogue")),
        _row(lambda row: row["entries"].clear()),
        _row(lambda row: row["boxes"].update(x=[])),
        _row(lambda row: row.pop("widths")),
        _row(lambda row: row["widths"].update(k=96)),
        _row(lambda row: row["limits"].pop("n_multiple")),
        _row(lambda row: row["limits"].update(unknown=1)),
        _row(lambda row: row.update(entries={})),
        _row(lambda row: row.pop("tokens"), DECODE[0]),
        _row(lambda row: row.pop("chunk"), DECODE[0]),
    ],
    ids=[
        *("empty", "truncated", "list", "null", "no format", "other format", "no variants"),
        *("row without threads", "row without arguments", "entry without an epilogue"),
        *("row without entries", "row with half a box"),
        *("row without widths", "row with one width that is no list"),
        *("row without a limit", "row with an unknown limit", "row with entries that are no list"),
        *("decode row without tokens", "decode row without a chunk"),
    ],
)
def test_a_damaged_manifest_says_how_to_rebuild(folder, damage):
    path = folder / "manifest.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(KernelsUnavailableError) as caught:
        variants(folder)
    assert f"{path} is damaged" in str(caught.value)
    assert REBUILD in str(caught.value)


def test_a_manifest_that_is_no_text_says_how_to_rebuild(folder):
    (folder / "manifest.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KernelsUnavailableError, match=re.escape(REBUILD)):
        variants(folder)


def test_a_repaired_manifest_is_read_in_the_same_process(folder):
    path = folder / "manifest.json"
    text = path.read_text()
    path.write_text("")
    with pytest.raises(KernelsUnavailableError):
        variants(folder)
    path.write_text(text)
    assert variants(folder) == moved(folder)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "cannot be read (No such file or directory)"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "is damaged: SHA-256"),
        (lambda path: path.write_bytes(b""), "is damaged: SHA-256"),
        (lambda path: path.write_bytes(_flipped(path.read_bytes())), "is damaged: SHA-256"),
    ],
    ids=["missing", "truncated", "empty", "one bit flipped"],
)
def test_a_damaged_cubin_says_how_to_rebuild(folder, damage, words):
    kernel = variants(folder)[0]
    path = Path(kernel.cubin)
    damage(path)
    with pytest.raises(KernelsUnavailableError) as caught:
        cubin(kernel)
    for word in (str(path), kernel.name, words, REBUILD):
        assert word in str(caught.value)


def _flipped(data):
    return data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]


def test_a_manifest_of_brackets_alone_is_damaged(tmp_path):
    (tmp_path / "manifest.json").write_text("[" * 200_000)
    with pytest.raises(KernelsUnavailableError, match="is damaged"):
        read_manifest(tmp_path)
