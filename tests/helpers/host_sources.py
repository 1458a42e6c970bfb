"""Pieces of the kernels' sources: read, or compiled for the host where they need no GPU."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

KERNELS = Path(__file__).resolve().parents[2] / "kernels_cu"


def extract(file: str, pattern: str) -> str:
    """A piece of a kernel's source, from a line that matches to the next `}` as far left."""
    source = (KERNELS / file).read_text()
    found = re.search(rf"^( *){pattern}.*?^\1}};?$", source, re.MULTILINE | re.DOTALL)
    assert found, f"{file} no longer has {pattern!r}: adapt the tests that compile it for the host"
    return found[0]


def entries_of(source: str, header: str, macro: str) -> list[dict[str, str]]:
    """The calls of a header's macro in a translation unit: parameter of the macro -> argument."""
    defined = (KERNELS / header).read_text().replace("\\\n", " ")
    names = re.search(rf"#define {macro}\(([^)]*)\)", defined)[1]
    calls = re.findall(rf"^{macro}\((.*)\)$", source, re.MULTILINE)
    split = re.compile(r"\s*,\s*").split
    return [dict(zip(split(names.strip()), split(call), strict=True)) for call in calls]


def compiled(folder: Path, name: str, source: str) -> ctypes.CDLL:
    """A library made of C++ that may include the kernels' plain headers."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    assert compiler, "this test compiles parts of the kernels: install a C++ compiler (c++)"
    (folder / f"{name}.cpp").write_text(source)
    options = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = [compiler, *options, f"-I{KERNELS}", f"{name}.cpp", "-o", f"{name}.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / f"{name}.so"))


def rows_written(function: Callable[..., int], arguments: tuple, width: int, room: int):
    """What a function writes, `width` integers at a time: (count, width) array.

    It takes `arguments`, room for how many rows, and an array; it returns how many it wrote, or
    -1 if there was not enough room.
    """
    written = np.full((room, width), -99, np.int32)
    count = function(*map(int, arguments), room, ctypes.c_void_p(written.ctypes.data))
    assert 0 <= count < room
    return written[:count]
