"""PairMulStore in stock CUTLASS GEMMs, compiled with NVRTC as the build does: no nvcc, no GPU."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from build_scripts import toolchain
from build_scripts.compile import LINKER_OPTIONS, PROGRAM_OPTIONS, Resources, parse_resources
from tests.helpers.cubin_files import disassemble

pytestmark = pytest.mark.codegen
ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels_cu"
SOURCE = ROOT / "tests" / "helpers" / "stock_gemm_pair_mul_store.cu"


@dataclass(frozen=True)
class Entry:
    """A kernel of the translation unit, and what a consumer thread does for one tile.

    Accumulators are those of a thread. The loops over sub-tiles are unrolled, so that counts of
    instructions are counts per tile.
    """

    name: str
    accumulators: int
    granularity: int
    sub_tiles: int
    gemm: bool = True

    @property
    def results(self) -> int:
        return self.accumulators // 2


ENTRIES = [
    Entry("pingpong_groups_of_8", 128 * 128 // 128, 8, sub_tiles=2 * 2),
    Entry("cooperative_even_odd", 128 * 256 // 256, 1, sub_tiles=1 * 4),
    Entry("outside_groups_of_8", 64 * 256 // 128, 8, sub_tiles=1 * 4, gemm=False),
    Entry("outside_even_odd", 64 * 256 // 128, 1, sub_tiles=1 * 4, gemm=False),
]
for_each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
for_gemms = pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if entry.gemm], ids=lambda entry: entry.name
)


def by_entry(found: dict[str, object]) -> dict[str, object]:
    """Mangled names -> the entry each contains."""
    return {
        entry.name: value
        for entry in ENTRIES
        for mangled, value in found.items()
        if entry.name in mangled
    }


@dataclass(frozen=True)
class Compiled:
    resources: dict[str, Resources]
    sass: dict[str, list[str]]  # mnemonics, with their suffixes
    log: str

    def count(self, entry: Entry, mnemonic: str) -> int:
        """How often an instruction occurs; MUFU counts MUFU.EX2 too."""
        return sum(
            found == mnemonic or found.startswith(f"{mnemonic}.") for found in self.sass[entry.name]
        )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Compiled:
    pytest.importorskip("cuda.core", reason="compiling needs cuda-core and the CUDA 12.9 wheels")
    try:
        toolchain.preload()
        toolchain.versions()
    except toolchain.ToolchainError as error:
        pytest.skip(str(error))
    from cuda.core import Linker, LinkerOptions, Program, ProgramOptions

    options = ProgramOptions(
        name=SOURCE.name, include_path=toolchain.include_path(KERNELS), **PROGRAM_OPTIONS
    )
    warnings = io.StringIO()
    program = Program(SOURCE.read_text(), "c++", options)
    linker = Linker(
        program.compile("ltoir", logs=warnings), options=LinkerOptions(**LINKER_OPTIONS)
    )
    cubin = tmp_path_factory.mktemp("cubin") / "stock.cubin"
    cubin.write_bytes(bytes(linker.link("cubin").code))
    log = linker.get_info_log()

    instruction = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][A-Z0-9_.]*)")
    sass = {name: instruction.findall(code) for name, code in disassemble(cubin).items()}
    return Compiled(by_entry(parse_resources(log)), by_entry(sass), warnings.getvalue() + log)


def test_every_kernel_is_there(compiled):
    names = {entry.name for entry in ENTRIES}
    assert compiled.resources.keys() == names
    assert compiled.sass.keys() == names


def test_the_header_warns_of_nothing(compiled):
    assert "epilogue/pair_mul_store.cuh" not in compiled.log


def test_ptxas_gave_nothing_up(compiled):
    assert not re.search(r"wgmma.*serialized|setmaxnreg.*ignored", compiled.log, re.IGNORECASE)


@for_each
def test_nothing_spills(compiled, entry):
    found = compiled.resources[entry.name]
    assert (found.spill_store_bytes, found.spill_load_bytes, found.stack_bytes) == (0, 0, 0)


@for_gemms
def test_the_gemm_multiplies_and_loads_by_tma(compiled, entry):
    assert compiled.count(entry, "HGMMA") >= 64 // 16
    assert compiled.count(entry, "UTMALDG") >= 2


@for_each
def test_every_sub_tile_is_stored_by_tma_alone(compiled, entry):
    assert compiled.count(entry, "UTMASTG") == entry.sub_tiles
    assert compiled.count(entry, "STG") == 0


@for_each
def test_the_activation_is_two_special_functions_a_result(compiled, entry):
    assert compiled.count(entry, "MUFU.EX2") == entry.results
    assert compiled.count(entry, "MUFU.RCP") == entry.results


@for_each
def test_a_result_is_rounded_once_and_nothing_else_is(compiled, entry):
    """No accumulator is rounded for a D that nobody stores."""
    per_instruction = 2  # F2FP packs two
    assert compiled.count(entry, "F2FP") == entry.results / per_instruction


@for_each
def test_results_reach_shared_memory_as_their_layout_allows(compiled, entry):
    matrices, halves = compiled.count(entry, "STSM"), compiled.count(entry, "STS.U16")
    if entry.granularity == 1:
        assert (matrices, halves) == (0, entry.results)
    else:
        assert (matrices, halves) == (entry.results / 8, 0)
    assert compiled.count(entry, "ST") == 0, "a pointer to shared memory became a generic one"
