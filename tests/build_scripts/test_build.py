"""The build: what is compiled again, what is refused, what is left behind."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from build_scripts import build as build_module
from build_scripts import toolchain
from build_scripts.build import (
    ABLATED,
    ALL_VARIANTS,
    KERNELS,
    NOTES,
    OUTPUT,
    ROOT,
    _reusable,
    build,
    source_hash,
)
from build_scripts.compile import (
    Compiled,
    CompileError,
    Resources,
    check_resources,
    compile_variant,
    parse_resources,
)
from build_scripts.variants import ABLATIONS, TILE_VARIANTS
from build_scripts.variants.resident import ResidentSource
from build_scripts.variants.swapped import SwappedSource
from build_scripts.variants.tile import TileSource
from cuswiglu.kernels.manifest import CUBINS, cubin, read_manifest, variants

VERSIONS = dict.fromkeys(toolchain.WHEELS, "1.0")
FIRST = TILE_VARIANTS[0]
CLEAN = {entry.name: Resources(168, 0, 0, 0) for entry in FIRST.entries}
# `ptxas -v`, as nvJitLink 12.9 logs it.
LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first_k' for 'sm_90a'
ptxas info    : Function properties for first_k
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers
ptxas info    : Compile time = 1391.183 ms
ptxas info    : Compiling entry function 'first_n' for 'sm_90a'
ptxas info    : Function properties for first_n
ptxas         .     48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size
"""


@pytest.fixture
def compiled(monkeypatch):
    """Let build() compile in this process, with a fake compiler; lists what it compiled.

    Set `compiled.failing` to a name to make that variant fail.
    """

    class Names(list):
        failing = None

    names = Names()

    def compile_fake(variant, kernels):
        names.append(variant.name)
        if variant.name == names.failing:
            raise CompileError(f"{variant.name}: no")
        resources = {entry.name: Resources(168, 0, 0, 0) for entry in variant.entries}
        return Compiled(f"\x7fELF {variant.name}".encode(), resources, 1.0)

    monkeypatch.setattr(build_module.compiler, "compile_variant", compile_fake)
    monkeypatch.setattr(toolchain, "versions", lambda: VERSIONS)
    monkeypatch.setattr(
        concurrent.futures,
        "ProcessPoolExecutor",
        lambda workers, **options: concurrent.futures.ThreadPoolExecutor(workers),
    )
    return names


@pytest.fixture
def built(tmp_path, compiled):
    """A folder that was just built by the fake compiler."""
    folder = tmp_path / "cubins"
    build(folder, say=lambda line: None)
    compiled.clear()
    return folder


def names_of(variants):
    return sorted(variant.name for variant in variants)


# What ptxas reports


def test_resources_are_read_from_the_log_of_ptxas():
    assert parse_resources(LOG) == {
        "first_k": Resources(168, 0, 0, 0),
        "first_n": Resources(255, 48, 40, 44),
    }


def test_a_log_that_reports_nothing_has_no_resources():
    assert parse_resources("ptxas info    : 0 bytes gmem\n") == {}


@pytest.mark.parametrize("entry", CLEAN)
@pytest.mark.parametrize("spilled", ["spill_store_bytes", "spill_load_bytes", "stack_bytes"])
def test_a_spill_is_refused_and_names_variant_and_entry(entry, spilled):
    found = CLEAN | {entry: dataclasses.replace(CLEAN[entry], **{spilled: 40})}
    with pytest.raises(CompileError, match=f"^{FIRST.name}: {entry} spills registers .*40"):
        check_resources(FIRST, found, "")


@pytest.mark.parametrize("declared", FIRST.entries, ids=lambda declared: declared.name)
def test_a_register_or_two_may_be_spilled_by_a_general_epilogue_alone(declared):
    entry = declared.name
    few = dataclasses.replace(CLEAN[entry], spill_store_bytes=8, spill_load_bytes=8, stack_bytes=8)
    found = CLEAN | {entry: few}
    if declared.epilogue == "general":
        check_resources(FIRST, found, "")
    else:
        with pytest.raises(CompileError, match=f"^{FIRST.name}: {entry} spills registers .*8"):
            check_resources(FIRST, found, "")


def test_an_entry_that_ptxas_did_not_report_is_refused():
    *found, missing = CLEAN
    with pytest.raises(CompileError, match=f"reported nothing of {missing}:\nthe log"):
        check_resources(FIRST, {entry: CLEAN[entry] for entry in found}, "the log")


@pytest.mark.parametrize(
    "line",
    [
        "Potential Performance Loss: wgmma.mma_async instructions are serialized due to ...",
        "setmaxnreg ignored to maintain minimum register requirements",
    ],
)
def test_a_lost_optimisation_is_refused(line):
    with pytest.raises(CompileError, match=f"^{FIRST.name}: ptxas gave up an optimisation"):
        check_resources(FIRST, CLEAN, f"ptxas info : {line}")


def test_clean_resources_pass():
    check_resources(FIRST, CLEAN, LOG)


# What is compiled again


def _reused(folder, sources):
    return set(_reusable(folder, sources))


@pytest.fixture
def real(tmp_path):
    """A copy of the package's cubins, and the source hashes they were built from."""
    folder = tmp_path / "cubins"
    shutil.copytree(CUBINS, folder)
    return folder, {row["name"]: row["source_sha256"] for row in read_manifest()["variants"]}


def test_unchanged_variants_are_reused(real):
    folder, sources = real
    assert _reused(folder, sources) == set(sources)


def test_a_variant_with_changed_source_is_compiled_again_alone(real):
    folder, sources = real
    assert _reused(folder, sources | {FIRST.name: "changed"}) == set(sources) - {FIRST.name}


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.unlink(),
    ],
    ids=["truncated", "missing"],
)
def test_a_damaged_cubin_is_compiled_again_alone(real, damage):
    folder, sources = real
    damage(folder / f"{FIRST.name}.cubin")
    assert _reused(folder, sources) == set(sources) - {FIRST.name}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"dual": []}'])
def test_without_readable_notes_everything_is_compiled(real, text):
    folder, sources = real
    (folder / NOTES).write_text(text)
    assert _reused(folder, sources) == set()


@pytest.mark.parametrize(
    "change",
    [
        lambda kernels: (kernels / "epilogue/activation.cuh").write_text("// changed"),
        lambda kernels: (kernels / "new.cuh").write_text(""),
        lambda kernels: (kernels / "epilogue/activation.cuh").rename(kernels / "renamed.cuh"),
        lambda kernels: (kernels / "common" / "new.cuh").write_text(""),
    ],
    ids=["edited", "added", "renamed", "added in a folder"],
)
def test_every_source_file_counts(tmp_path, change):
    kernels = tmp_path / "kernels_cu"
    shutil.copytree(KERNELS, kernels)
    before = source_hash(FIRST, VERSIONS, kernels)
    assert before == source_hash(FIRST, VERSIONS, KERNELS)
    change(kernels)
    assert source_hash(FIRST, VERSIONS, kernels) != before


def test_the_toolchain_counts():
    assert source_hash(FIRST, VERSIONS) != source_hash(FIRST, VERSIONS | {"nvrtc": "2.0"})


def test_the_row_of_the_table_counts():
    assert source_hash(FIRST, VERSIONS) != source_hash(
        dataclasses.replace(FIRST, block_n=FIRST.block_n + 8), VERSIONS
    )


# build()


def test_a_build_writes_what_the_library_reads(tmp_path, compiled):
    path = build(tmp_path / "new" / "cubins", say=lambda line: None)
    assert sorted(compiled) == names_of(ALL_VARIANTS)
    kernels = variants(path.parent)
    assert [kernel.name for kernel in kernels] == [variant.name for variant in ALL_VARIANTS]
    for kernel, variant in zip(kernels, ALL_VARIANTS, strict=True):
        assert cubin(kernel) == f"\x7fELF {kernel.name}".encode()
        assert Path(kernel.cubin) == path.parent / f"{kernel.name}.cubin"
        assert kernel.registers == 168
        assert [entry.name for entry in kernel.entries] == [e.name for e in variant.entries]
        assert kernel.arguments == variant.arguments
        if isinstance(variant, TileSource):
            assert kernel.shared_bytes == variant.shared_bytes
            assert dict(kernel.widths) == {m: tuple(variant.widths(m)) for m in variant.layouts}
        elif isinstance(variant, SwappedSource):
            assert (kernel.most, kernel.block_n) == (variant.most, variant.block_n)
        elif isinstance(variant, ResidentSource):
            assert (kernel.fixed_bytes, kernel.x_bytes) == (variant.fixed_bytes, variant.x_bytes)
        else:
            assert (kernel.tokens, kernel.chunk) == (variant.tokens, variant.chunk)
    assert json.loads(path.read_text())["toolchain"] == VERSIONS


def test_a_second_build_compiles_nothing_and_writes_the_same(built, compiled):
    before = (built / "manifest.json").read_bytes()
    build(built, say=lambda line: None)
    assert compiled == []
    assert (built / "manifest.json").read_bytes() == before


def test_only_a_damaged_variant_is_built_again(built, compiled):
    before = (built / "manifest.json").read_bytes()
    (built / f"{FIRST.name}.cubin").write_bytes(b"damaged")
    build(built, say=lambda line: None)
    assert compiled == [FIRST.name]
    assert (built / "manifest.json").read_bytes() == before


def test_cubins_of_removed_variants_are_deleted(built, compiled):
    build(built, ALL_VARIANTS[1:], say=lambda line: None)
    assert {path.stem for path in built.glob("*.cubin")} == {i.name for i in ALL_VARIANTS[1:]}
    assert compiled == []


def test_progress_is_said_for_every_variant(tmp_path, compiled):
    lines = []
    build(tmp_path / "cubins", say=lines.append)
    for number in range(1, len(ALL_VARIANTS) + 1):
        assert sum(line.startswith(f"[{number}/{len(ALL_VARIANTS)}] ") for line in lines) == 1
    assert all(any(f"] {name}: 168 registers" in line for line in lines) for name in compiled)


def test_a_failed_build_names_the_variant_and_writes_no_manifest(tmp_path, compiled):
    compiled.failing = FIRST.name
    with pytest.raises(CompileError, match=f"^{FIRST.name}: no"):
        build(tmp_path / "cubins", say=lambda line: None)
    assert not (tmp_path / "cubins" / "manifest.json").exists()


def test_no_temporary_files_are_left(built):
    expected = {"manifest.json", NOTES} | {f"{variant.name}.cubin" for variant in ALL_VARIANTS}
    assert {path.name for path in built.iterdir()} == expected


# Kernels that exist only to be timed


def test_kernels_to_be_timed_are_built_into_a_folder_that_the_library_reads(tmp_path, compiled):
    build(tmp_path, ABLATIONS, say=lambda line: None)
    kernels = variants(tmp_path)
    assert [kernel.family for kernel in kernels] == ["sync", "sync-late", "sync-bare"]
    for kernel, variant in zip(kernels, ABLATIONS, strict=True):
        assert kernel.entries[0].name == variant.entries[0].name
        assert cubin(kernel) == f"\x7fELF {kernel.name}".encode()


@pytest.fixture
def command(monkeypatch):
    """`python -m build_scripts` with these options; gives what build() was called with."""

    def run(*options, fails_with=None):
        asked = []

        def build_fake(*arguments):
            asked.append(arguments)
            if fails_with:
                raise fails_with

        monkeypatch.setattr(build_module, "build", build_fake)
        monkeypatch.setattr(sys, "argv", ["build_scripts", *options])
        runpy.run_module("build_scripts", run_name="__main__")
        return asked

    return run


def test_the_command_builds_the_package(command):
    assert command() == [()]
    assert OUTPUT == CUBINS


def test_the_command_builds_kernels_to_be_timed_outside_of_the_package_where_asked(command):
    assert command("--ablations") == [(ABLATED, ABLATIONS)]
    assert ABLATED.is_relative_to(ROOT)
    assert not ABLATED.is_relative_to(ROOT / "cuswiglu")


@pytest.mark.parametrize("error", [CompileError("dual: no"), toolchain.ToolchainError("no wheel")])
def test_a_build_that_fails_ends_the_command_with_its_words(command, error):
    with pytest.raises(SystemExit, match=f"^error: {error}$"):
        command(fails_with=error)


# The real compiler


@dataclasses.dataclass(frozen=True)
class Broken(TileSource):
    def translation_unit(self):
        return 'extern "C" __global__ void broken() { undeclared(); }\n'


def test_a_compile_error_names_the_variant_and_has_the_compilers_words():
    pytest.importorskip("cuda.core", reason="compiling needs cuda-core and the CUDA 12.9 wheels")
    try:
        toolchain.versions()
    except toolchain.ToolchainError as error:
        pytest.skip(str(error))
    variant = Broken("dual", "pingpong", 128, 96, 1)
    with pytest.raises(CompileError, match=f"^{variant.name}: ") as caught:
        compile_variant(variant, KERNELS)
    assert 'identifier "undeclared" is undefined' in str(caught.value)
    assert f"{variant.name}.cu(1)" in str(caught.value)
