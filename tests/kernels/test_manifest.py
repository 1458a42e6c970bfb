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
from build_scripts.variants import ALL_INSTANCES
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
from tests.helpers.compiled import DECODE, TILES
from tests.helpers.cubin_files import KERNELS
from tests.helpers.fake_driver import DECODE_NUMBERS, TILE_NUMBERS

ROWS = {row["name"]: row for row in read_manifest()["instances"]}
NAMES = list(KERNELS)
TILE_NAMES = [kernel.name for kernel in TILES]
DECODE_NAMES = [kernel.name for kernel in DECODE]


def entries_of(kernels):
    return [
        pytest.param(kernel.name, key, id=entry["name"])
        for kernel in kernels
        for key, entry in ROWS[kernel.name]["entries"].items()
    ]


def layout_of(key):
    """Of the weights that an entry takes."""
    return key.partition("_")[0]


def entry_of(name, key):
    """What an entry is called in the cubin."""
    return ROWS[name]["entries"][key]["name"]


def code_of(name, key):
    """An entry's instructions."""
    return cubin_files.sass(name)[entry_of(name, key)]


ENTRIES, TILE_ENTRIES, DECODE_ENTRIES = map(entries_of, (variants(), TILES, DECODE))
INSTANCE = {instance.name: instance for instance in ALL_INSTANCES}


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
    entries = {entry.name for entry in KERNELS[name].entries}
    assert entries == set(map(INSTANCE[name].entry, INSTANCE[name].keys))
    assert set(cubin_files.functions(name)) == entries


@pytest.mark.parametrize(("name", "key"), TILE_ENTRIES)
def test_an_entry_takes_four_descriptors_two_addresses_and_the_numbers_of_a_plan(name, key):
    """What `plan._Arguments` packs, as the fake driver takes it apart."""
    found = cubin_files.parameter_bytes(name, entry_of(name, key))
    assert found == [128] * 4 + [8, 8] + [*TILE_NUMBERS.values()]


@pytest.mark.parametrize(("name", "key"), DECODE_ENTRIES)
def test_a_decode_entry_takes_three_descriptors_three_addresses_and_the_numbers(name, key):
    found = cubin_files.parameter_bytes(name, entry_of(name, key))
    assert found == [128] * 3 + [8, 8, 8] + [*DECODE_NUMBERS.values()]


@pytest.mark.parametrize(("name", "key"), ENTRIES)
def test_an_entry_uses_tensor_cores_and_tma(name, key):
    code = code_of(name, key)
    assert set(re.findall(r"\bHGMMA\.\S*F32(\.BF16)?", code)) == {"" if "_f16" in key else ".BF16"}
    assert re.search(r"\bUTMALDG\.2D", code)
    # A decode kernel stores each thread's own elements.
    assert bool(re.search(r"\bUTMASTG\.2D", code)) == (name in TILE_NAMES)


@pytest.mark.parametrize(("name", "key"), DECODE_ENTRIES)
def test_the_products_of_a_decode_kernel_have_its_tokens_as_columns(name, key):
    code = code_of(name, key)
    found = {int(width) for width in re.findall(r"\bHGMMA\.64x(\d+)x16\b", code)}
    assert found == {KERNELS[name].tokens}


@pytest.mark.parametrize(("name", "key"), TILE_ENTRIES)
def test_loads_are_multicast_in_clusters_and_nowhere_else(name, key):
    code = code_of(name, key)
    assert ("UTMALDG.2D.MULTICAST" in code) == (KERNELS[name].cluster_m > 1)


@pytest.mark.parametrize(("name", "key"), TILE_ENTRIES)
def test_an_entry_has_products_of_every_width_that_a_column_can_have(name, key):
    """In columns of a WGMMA, 256 at most: gate's and up's together where both fit."""
    code = code_of(name, key)
    found = {int(width) for width in re.findall(r"\bHGMMA\.64x(\d+)x16\b", code)}
    each = INSTANCE[name].columns // KERNELS[name].block_n
    widths = dict(KERNELS[name].widths)[layout_of(key)]
    assert found == {each * width if each * width <= 256 else width for width in widths}


@pytest.mark.parametrize(("name", "key"), TILE_ENTRIES)
def test_an_entry_stores_each_width_in_boxes_of_its_own(name, key):
    """Loops over boxes are unrolled, 64 rows by 32 columns each; for GELU, ReLU and the others."""
    code = code_of(name, key)
    row_blocks = INSTANCE[name].warpgroup_m // 64
    boxes = [row_blocks * -(-width // 32) for width in dict(KERNELS[name].widths)[layout_of(key)]]
    times = 3 if "_any" in key and KERNELS[name].gated else 1
    assert len(re.findall(r"\bUTMASTG\.2D", code)) == times * sum(boxes)


@pytest.mark.parametrize(("name", "key"), TILE_ENTRIES)
def test_an_element_is_activated_once_though_two_boxes_may_store_it(name, key):
    """One exponential each: of 64 rows, a thread has half as many elements as there are columns.

    An entry for extras has GELU's and those of the coefficients; ReLU needs none.
    """
    code = code_of(name, key)
    row_blocks = INSTANCE[name].warpgroup_m // 64
    widths = dict(KERNELS[name].widths)[layout_of(key)]
    times = 2 if "_any" in key else 1
    each = [times * row_blocks * width // 2 for width in widths]
    expected = sum(each) if KERNELS[name].gated else 0
    assert len(re.findall(r"\bMUFU\.EX2\b", code)) == expected


@pytest.mark.parametrize(("name", "key"), ENTRIES)
def test_an_entry_spills_nothing_and_one_for_extras_a_register_or_two(name, key):
    spilled = re.findall(r"\b(?:STL|LDL)\b", code_of(name, key))
    frame = cubin_files.per_function(name, cubin_files.FRAME_SIZE)[entry_of(name, key)]
    row = ROWS[name]["entries"][key]
    if "_any" not in key:
        assert (spilled, frame, row["spill_bytes"]) == ([], 0, 0)
    assert frame <= SPILL_BYTES
    assert row["spill_bytes"] <= 2 * SPILL_BYTES


@pytest.mark.parametrize(("name", "key"), ENTRIES)
def test_registers_are_those_of_the_cubin(name, key):
    found = cubin_files.per_function(name, cubin_files.REGISTER_COUNT)
    assert ROWS[name]["entries"][key]["registers"] == found[entry_of(name, key)]


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


@pytest.mark.parametrize(("name", "key"), ENTRIES)
def test_an_entry_waits_for_the_work_ahead_and_lets_the_work_behind_start(name, key):
    """Programmatic dependent launch: griddepcontrol, as SASS has it."""
    code = code_of(name, key)
    assert re.search(r"\bACQBULK\b", code)
    assert re.search(r"\bPREEXIT\b", code)


@pytest.mark.parametrize("name", TILE_NAMES)
def test_tma_boxes_tile_the_block(name):
    kernel = KERNELS[name]
    boxes = dict(kernel.boxes)
    assert set(boxes) == {"x", "out"} | {f"weight_{major}" for major in kernel.layouts}
    assert boxes["x"] == (kernel.block_k, kernel.block_m, 128)
    assert kernel.block_m % boxes["out"][1] == 0
    slices = INSTANCE[name].slices
    for major in kernel.layouts:
        box = boxes[f"weight_{major}"]
        if major == "n":
            assert box[1] == kernel.block_k // slices
            assert all(width % box[0] == 0 for width in dict(kernel.widths)[major])
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
    instance = INSTANCE[name]
    expected = {major: tuple(instance.widths(major)) for major in instance.majors}
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
        (row,) = (one for one in content["instances"] if one["name"] == kernel.name)
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
        lambda text: text.replace('"instances"', '"kernels"'),
        _row(lambda row: row.pop("threads")),
        _row(lambda row: row["entries"].clear()),
        _row(lambda row: row["boxes"].update(x=[])),
        _row(lambda row: row.pop("widths")),
        _row(lambda row: row["widths"].update(k=96)),
        _row(lambda row: row["limits"].pop("n_multiple")),
        _row(lambda row: row["limits"].update(unknown=1)),
        _row(lambda row: row.update(entries=[])),
        _row(lambda row: row.pop("tokens"), DECODE[0]),
        _row(lambda row: row.pop("chunk"), DECODE[0]),
    ],
    ids=[
        *("empty", "truncated", "list", "null", "no format", "other format", "no instances"),
        *("row without threads", "row without entries", "row with half a box"),
        *("row without widths", "row with one width that is no list"),
        *("row without a limit", "row with an unknown limit", "row with a list of entries"),
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
