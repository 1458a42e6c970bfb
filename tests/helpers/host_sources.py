"""Headers of the kernels that need no GPU, compiled for the host."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

KERNELS = Path(__file__).resolve().parents[2] / "kernels_cu"


def compiled(folder: Path, name: str, source: str, includes: Iterable[str] = ()) -> ctypes.CDLL:
    """A library made of C++ that may include headers of the kernels, and those in `includes`."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    assert compiler, "this test compiles parts of the kernels: install a C++ compiler (c++)"
    (folder / f"{name}.cpp").write_text(source)
    options = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    options += [f"-I{KERNELS}", *(f"-isystem{include}" for include in includes)]
    command = [compiler, *options, f"{name}.cpp", "-o", f"{name}.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / f"{name}.so"))


def exported(name: str, called: str, arguments: str) -> str:
    """A C function of integers that calls a C++ one; both take room for rows, and an array."""
    names = [*arguments.split(), "room"]
    declared = ", ".join(f"int {argument}" for argument in names)
    return (
        f'extern "C" int {name}({declared}, int* rows) {{\n'
        f"  return {called}({', '.join(names)}, rows);\n}}"
    )


def rows_written(function: Callable[..., int], arguments: tuple, width: int, room: int):
    """What a function writes, `width` integers at a time: (count, width) array.

    It takes `arguments`, room for how many rows, and an array; it returns how many it wrote, or
    -1 if there was not enough room.
    """
    written = np.full((room, width), -99, np.int32)
    count = function(*map(int, arguments), room, ctypes.c_void_p(written.ctypes.data))
    assert 0 <= count < room
    return written[:count]
