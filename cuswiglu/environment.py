"""What is here: GPU, driver, packages, kernels, and which backend they allow."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import asdict, dataclass
from typing import Any

from . import driver, select, variant

PACKAGES = (
    "numpy",
    "ml_dtypes",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "cuda-bindings",
    "cuda-core",
    "safetensors",
    "gguf",
    "jax",
    "torch",
)


@dataclass(frozen=True)
class Gpu:
    """A CUDA device: name, compute capability ("9.0"), number of multiprocessors."""

    name: str
    capability: str
    multiprocessors: int


@dataclass(frozen=True)
class Environment:
    """`backend` is "sm90", "cublas" or "numpy"; `reason` says why it is not sm90, or is empty."""

    cuswiglu: str
    python: str
    platform: str
    packages: dict[str, str]
    driver_cuda: str
    gpus: list[Gpu]
    kernels: int
    kernel_bytes: int
    toolchain: dict[str, str]
    backend: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def look() -> Environment:
    """Look at this machine; never raises for what it lacks."""
    from . import __version__

    installed = {name: _version(name) for name in PACKAGES}
    kernels, toolchain, kernel_trouble = 0, {}, ""
    size = 0
    try:
        manifest = variant.manifest()
        kernels = len(variant.variants())
        toolchain = dict(manifest["toolchain"])
        size = sum(row["bytes"] for row in manifest["instances"])
    except variant.KernelsUnavailableError as error:
        kernel_trouble = str(error)
    version, gpus, gpu_trouble = _gpus()
    backend, reason = _backend(gpus, gpu_trouble, kernel_trouble)
    return Environment(
        cuswiglu=__version__,
        python=sys.version.split()[0],
        platform=platform.platform(),
        packages={name: version for name, version in installed.items() if version},
        driver_cuda=version,
        gpus=gpus,
        kernels=kernels,
        kernel_bytes=size,
        toolchain=toolchain,
        backend=backend,
        reason=reason,
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _gpus() -> tuple[str, list[Gpu], str]:
    """The driver's CUDA version, its GPUs, and what is wrong, if anything."""
    if not driver.installed():
        return "", [], driver.NO_DRIVER
    try:
        cuda = driver.driver()
        version, count = cuda.version(), cuda.device_count()
        infos = [cuda.device_info(index) for index in range(count)]
    except (ImportError, driver.DriverError) as error:
        return "", [], str(error)
    gpus = [
        Gpu(info.name, ".".join(map(str, info.capability)), info.multiprocessors) for info in infos
    ]
    return version, gpus, "" if gpus else "the CUDA driver sees no GPU"


def _backend(gpus: list[Gpu], gpu_trouble: str, kernel_trouble: str) -> tuple[str, str]:
    if gpu_trouble:
        return select.REFERENCE, gpu_trouble
    try:
        import cupy  # noqa: F401
    except ImportError as error:
        return select.REFERENCE, f"CuPy cannot be imported ({error})"
    if kernel_trouble:
        return select.PORTABLE, f"only with variant='cublas': {kernel_trouble}"
    first = gpus[0]
    if first.capability != "9.0":
        return select.PORTABLE, (
            f"{first.name} has compute capability {first.capability}, the kernels need 9.0 (Hopper)"
        )
    return "sm90", ""
