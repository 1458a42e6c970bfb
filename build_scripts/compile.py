"""Compilation of a variant: CUDA C++ -> LTO-IR (NVRTC) -> cubin (nvJitLink), and ptxas's report."""

from __future__ import annotations

import io
import re
import time
from dataclasses import dataclass
from pathlib import Path

from . import toolchain
from .variants import VariantSource
from .variants.entries import is_general

ARCH = "sm_90a"
PROGRAM_OPTIONS = {
    "ftz": True,  # else every exponential is guarded against subnormals: 3 instructions more
    "define_macro": "NDEBUG",  # CUTLASS's device asserts serialise WGMMAs
    "std": "c++17",
    "arch": ARCH,
    "device_as_default_execution_space": True,
    "link_time_optimization": True,
}
LINKER_OPTIONS = {
    "arch": ARCH,
    "link_time_optimization": True,
    "optimize_unused_variables": True,
    "ptxas_options": ["-v"],
    "verbose": True,
}

#: Bytes of registers that an entry with the general epilogue may spill: two registers, stored and
#: loaded once a tile, are a few of thousands of instructions. The others spill nothing.
SPILL_BYTES = 8

_FUNCTION = re.compile(
    r"Function properties for (?P<entry>\w+)\s.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads\s.*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


class CompileError(RuntimeError):
    """Error of a variant that does not compile, or spills registers."""


@dataclass(frozen=True)
class Resources:
    """Report of ptxas on one entry: registers a thread at entry, bytes spilled."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True)
class Compiled:
    """A cubin and the resources of each of its entries."""

    cubin: bytes
    resources: dict[str, Resources]
    seconds: float


def parse_resources(log: str) -> dict[str, Resources]:
    """Read `ptxas -v` output: entry name -> resources."""
    return {
        match["entry"]: Resources(
            int(match["registers"]), int(match["stack"]), int(match["stores"]), int(match["loads"])
        )
        for match in _FUNCTION.finditer(log)
    }


def check_resources(variant: VariantSource, resources: dict[str, Resources], log: str) -> None:
    """Refuse a spill, a stack frame, serialised WGMMAs, or a report without an entry."""
    for entry in variant.entries:
        most = SPILL_BYTES if is_general(entry) else 0
        if entry.name not in resources:
            raise CompileError(f"{variant.name}: ptxas reported nothing of {entry.name}:\n{log}")
        found = resources[entry.name]
        if max(found.spill_store_bytes, found.spill_load_bytes, found.stack_bytes) > most:
            raise CompileError(
                f"{variant.name}: {entry.name} spills registers ({found.spill_store_bytes} bytes "
                f"stored, {found.spill_load_bytes} loaded, {found.stack_bytes} of stack): choose "
                "a smaller tile in the table of variants"
            )
    if re.search(r"wgmma.*serialized|setmaxnreg.*ignored", log, re.IGNORECASE):
        raise CompileError(f"{variant.name}: ptxas gave up an optimisation it needs:\n{log}")


def compile_variant(variant: VariantSource, kernels: Path) -> Compiled:
    """Compile all entries of a variant.

    Raises
    ------
    CompileError
        Naming the variant, with the compiler's own words.
    """
    toolchain.preload()
    from cuda.core import Linker, LinkerOptions, Program, ProgramOptions

    start = time.perf_counter()
    options = ProgramOptions(
        name=f"{variant.name}.cu",
        include_path=toolchain.include_path(kernels),
        **PROGRAM_OPTIONS,
    )
    logs = io.StringIO()
    try:
        program = Program(variant.translation_unit(), "c++", options)
        object_code = program.compile("ltoir", logs=logs)
        linker = Linker(object_code, options=LinkerOptions(**LINKER_OPTIONS))
        cubin = bytes(linker.link("cubin").code)
    except Exception as error:
        raise CompileError(f"{variant.name}: {error}\n{logs.getvalue()}") from error
    log = linker.get_info_log()
    resources = parse_resources(log)
    check_resources(variant, resources, log)
    return Compiled(cubin, resources, time.perf_counter() - start)
