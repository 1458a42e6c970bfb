"""Where the compiler and the headers are: PyPI wheels, and nothing else."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
from pathlib import Path

WHEELS = {
    "nvrtc": "nvidia-cuda-nvrtc-cu12",
    "nvjitlink": "nvidia-nvjitlink-cu12",
    "cuda_runtime": "nvidia-cuda-runtime-cu12",
    "cccl": "nvidia-cuda-cccl-cu12",
    "crt": "nvidia-cuda-nvcc-cu12",
    "cutlass": "nvidia-cutlass",
    "cuda_core": "cuda-core",
    "cuda_bindings": "cuda-bindings",
}
LIBRARIES = ("cuda_nvrtc/lib/libnvrtc.so.12", "nvjitlink/lib/libnvJitLink.so.12")
INCLUDES = ("cuda_runtime/include", "cuda_cccl/include", "cuda_nvcc/include")


class ToolchainError(RuntimeError):
    """Error of a build that lacks a wheel it needs."""


def _package_folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ToolchainError(
            f"the build needs the Python package {package!r}, which is not installed: "
            "run `pip install .`, which fetches it, or see [build-system] in pyproject.toml"
        )
    return [Path(folder) for folder in spec.submodule_search_locations]


def _nvidia(relative: str) -> Path:
    folders = _package_folders("nvidia")
    for folder in folders:
        if (folder / relative).exists():
            return folder / relative
    raise ToolchainError(
        f"the build needs nvidia/{relative} (CUDA 12.9 wheels), which is in none of "
        f"{', '.join(map(str, folders))}: see [build-system] in pyproject.toml"
    )


@functools.cache
def preload() -> None:
    """Load NVRTC and nvJitLink from their wheels, before cuda.core looks for them.

    cuda-pathfinder does not find them inside pip's isolated build environment.
    """
    for library in LIBRARIES:
        ctypes.CDLL(str(_nvidia(library)), mode=ctypes.RTLD_GLOBAL)


def include_path(kernels: Path) -> list[str]:
    """List NVRTC's include folders: our sources, CUTLASS, CUDA's runtime, CCCL and crt headers."""
    cutlass = _package_folders("cutlass_library")[0] / "source" / "include"
    return [str(kernels), str(cutlass), *(str(_nvidia(folder)) for folder in INCLUDES)]


def versions() -> dict[str, str]:
    """Look up the version of every wheel that shapes a cubin."""
    try:
        return {name: importlib.metadata.version(wheel) for name, wheel in WHEELS.items()}
    except importlib.metadata.PackageNotFoundError as error:
        raise ToolchainError(
            f"the build needs the wheel {error.name!r}: see [build-system] in pyproject.toml"
        ) from error
