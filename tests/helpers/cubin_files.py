"""What a cubin says of itself: ELF header, symbols, ptxas's notes, and its SASS."""

from __future__ import annotations

import functools
import importlib.util
import io
import re
import shutil
import struct
import subprocess
from pathlib import Path

from elftools.elf.elffile import ELFFile

from cuswiglu.kernels.manifest import cubin, variants

KERNELS = {kernel.name: kernel for kernel in variants()}

# CUDA binary utilities: formats and attributes of .nv.info records.
_FORMAT_WITH_SIZE = 4
REGISTER_COUNT, FRAME_SIZE, PARAMETER = 0x2F, 0x11, 0x17


@functools.cache
def elf(name: str) -> ELFFile:
    return ELFFile(io.BytesIO(cubin(KERNELS[name])))


def functions(name: str) -> dict[str, int]:
    """Global functions of a cubin: symbol -> its index in the symbol table."""
    return {
        symbol.name: index
        for index, symbol in enumerate(elf(name).get_section_by_name(".symtab").iter_symbols())
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_info"]["bind"] == "STB_GLOBAL"
    }


def notes(name: str, section: str) -> list[tuple[int, bytes]]:
    """(attribute, payload) of the records of a .nv.info section."""
    data, found = elf(name).get_section_by_name(section).data(), []
    while data:
        form, attribute, size = struct.unpack_from("<BBH", data)
        payload = 4 + (size if form == _FORMAT_WITH_SIZE else 0)
        found.append((attribute, data[4:payload]))
        data = data[payload:]
    return found


def per_function(name: str, attribute: int) -> dict[str, int]:
    """A value that ptxas notes of every function, as REGISTER_COUNT."""
    names = {index: function for function, index in functions(name).items()}
    records = (struct.unpack("<II", p) for a, p in notes(name, ".nv.info") if a == attribute)
    return {names[index]: value for index, value in records}


def parameter_bytes(name: str, entry: str) -> list[int]:
    """The size of each parameter of an entry, in order."""
    sizes = {}
    for attribute, payload in notes(name, f".nv.info.{entry}"):
        if attribute == PARAMETER:
            _, ordinal, _, flags = struct.unpack("<IHHI", payload)
            sizes[ordinal] = flags >> 18
    return [sizes[ordinal] for ordinal in sorted(sizes)]


def _disassembler() -> str:
    """nvdisasm of the wheel nvidia-cuda-nvdisasm, or of a CUDA toolkit."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        for path in sorted(Path(folder).glob("*/bin/nvdisasm*")):
            return str(path)
    path = shutil.which("nvdisasm")
    assert path, "no nvdisasm here: pip install nvidia-cuda-nvdisasm"
    return path


def disassemble(path: Path) -> dict[str, str]:
    """The instructions of a cubin file: section of code -> text."""
    text = subprocess.run(
        [_disassembler(), "-c", str(path)], capture_output=True, text=True, check=True
    ).stdout
    _, *parts = re.split(r"^//-+ \.text\.(\w+) +-+$", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@functools.cache
def sass(name: str) -> dict[str, str]:
    """The instructions of a kernel's cubin: section of code -> text."""
    return disassemble(Path(KERNELS[name].cubin))
