"""The machine's GPUs, driver, packages, kernels and tuned tables, and the backend they allow.

Made for bug reports and published records: paths are redacted.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import arrays
from .common.device import DeviceInfo
from .kernels import manifest
from .runtime import driver
from .selection import select, tuned

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
    "jaxlib",
    "torch",
    "nvidia-cublas",
    "nvidia-cublas-cu12",
)
#: Environment variables that change what CUDA, CuPy or JAX do.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "CUPY_ACCELERATORS",
    "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM",
    "CUPY_TF32",
    "JAX_PLATFORMS",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
)
#: Variables that hold paths: only whether they are set is reported.
PATH_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_CACHE_HOME")
DRIVER_VERSION = Path("/proc/driver/nvidia/version")
_PACKAGE = Path(__file__).parent
# Two or more folders before a name; what follows a URL's colon does not count.
_FOLDERS = re.compile(r"(?<![\w:/.~])(?:/[^\s/:;,'\"()=]+){2,}(?=/)")


@dataclass(frozen=True)
class Gpu:
    """CUDA device: its name, compute capability ("9.0") and number of multiprocessors."""

    name: str
    capability: str
    multiprocessors: int


@dataclass(frozen=True)
class TunedTable:
    """Tuned table, and whether it counts on this machine.

    Attributes
    ----------
    whose : str
        "user" or "packaged".
    gpu, measured_with : str
        GPU, and kernels and driver, that it was measured with.
    choices : int
        Number of its entries.
    unused : str
        Reason why it does not count here, or empty.
    """

    whose: str
    gpu: str
    measured_with: str
    choices: int
    unused: str


@dataclass(frozen=True)
class Environment:
    """Description of a machine, made by `collect`.

    Attributes
    ----------
    cuswiglu, python, platform : str
    packages, variables, toolchain : dict
        Installed packages, environment variables that are set, tools that built the kernels.
    driver, driver_cuda : str
        Version of the NVIDIA driver, and newest CUDA version it supports.
    gpus : list of Gpu
    kernels, kernel_bytes : int
        Number and size of the cubins.
    fingerprint, sources : str
        Short hashes of the cubins, and of everything they were compiled from.
    tables : list of TunedTable
        For the first GPU.
    backend, reason : str
        "sm90", "cublas" or "numpy"; the reason why it is not sm90, or empty.
    warnings : list of str
        Packages that do not fit together, or do not fit the driver.
    """

    cuswiglu: str
    python: str
    platform: str
    packages: dict[str, str]
    variables: dict[str, str]
    driver: str
    driver_cuda: str
    gpus: list[Gpu]
    kernels: int
    kernel_bytes: int
    fingerprint: str
    sources: str
    toolchain: dict[str, str]
    tables: list[TunedTable]
    backend: str
    reason: str
    warnings: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and values, for JSON."""
        return asdict(self)


def collect() -> Environment:
    """Describe this machine; never raises for what it lacks."""
    from . import __version__

    installed = {name: version for name in PACKAGES if (version := version_of(name))}
    kernels, toolchain, kernel_trouble = 0, {}, ""
    size, fingerprint, sources = 0, "", ""
    try:
        found = manifest.read_manifest()
        kernels = len(manifest.variants())
        toolchain = dict(found["toolchain"])
        size = sum(row["bytes"] for row in found["variants"])
        fingerprint = select.fingerprint_of(manifest.variants())
        sources = _short_hash(row.get("source_sha256", "") for row in found["variants"])
    except manifest.KernelsUnavailableError as error:
        kernel_trouble = str(error)
    version, gpus, gpu_trouble = _gpus()
    backend, reason = _backend(gpus, gpu_trouble, kernel_trouble)
    return Environment(
        cuswiglu=__version__,
        python=sys.version.split()[0],
        platform=platform.platform(),
        packages=installed,
        variables=_variables(),
        driver=_driver(),
        driver_cuda=version,
        gpus=gpus,
        kernels=kernels,
        kernel_bytes=size,
        fingerprint=fingerprint,
        sources=sources,
        toolchain=toolchain,
        tables=_tables(gpus, version, fingerprint),
        backend=backend,
        reason=redact_paths(reason),
        warnings=_warnings(installed, version),
    )


def redact_paths(text: str) -> str:
    """Replace the folders of every path in a text by "..."; its last part stays."""
    known = {str(_PACKAGE): "cuswiglu", os.path.expanduser("~"): "~", sys.prefix: "..."}
    for folder, short in sorted(known.items(), key=lambda item: -len(item[0])):
        if len(folder) > 1:
            text = text.replace(folder + os.sep, short + os.sep)
    return _FOLDERS.sub("...", text)


def _short_hash(hashes: Iterable[str]) -> str:
    return hashlib.sha256("".join(sorted(hashes)).encode()).hexdigest()[:16]


def _variables() -> dict[str, str]:
    told = {name: redact_paths(os.environ[name]) for name in VARIABLES if name in os.environ}
    return told | {name: "set" for name in PATH_VARIABLES if os.environ.get(name)}


def _driver() -> str:
    """Read the driver's version from its kernel module; empty if there is none."""
    try:
        text = DRIVER_VERSION.read_text()
    except OSError:
        return ""
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found[1] if found else ""


def _tables(gpus: list[Gpu], driver_cuda: str, fingerprint: str) -> list[TunedTable]:
    """List the tuned tables; as in `tuned.lookup`, the user's needs these kernels and driver."""
    gpu, here = "", ""
    if gpus:
        gpu = gpus[0].name
        if fingerprint:
            here = select.measured_with(DeviceInfo(gpu, (0, 0), 0, driver_cuda))
    found = []
    for whose, table in zip(("user", "packaged"), tuned.tables(), strict=True):
        unused = ""
        if table is tuned.EMPTY:
            unused = "there is none, or it cannot be read"
        elif not gpus:
            unused = "there is no GPU here"
        elif table.gpu != gpu:
            unused = f"it is for another GPU than {gpu}"
        elif whose == "user" and table.measured_with != here:
            unused = f"it is for other kernels or another driver than {here or 'none'}"
        found.append(TunedTable(whose, table.gpu, table.measured_with, len(table.choices), unused))
    return found


def version_of(package: str) -> str:
    """Find the version of an installed package; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _warnings(packages: dict[str, str], driver_cuda: str) -> list[str]:
    """Find packages of CUDA 12 and 13 that do not fit together, or do not fit the driver."""
    way_out = "install one of 'cuswiglu[cuda12]' and 'cuswiglu[cuda13]' in a fresh environment"
    cupy = [name for name in ("cupy-cuda12x", "cupy-cuda13x") if name in packages]
    found = [
        f"{name} {packages[name]} knows no bfloat16: upgrade to {arrays.CUPY_MAJOR}"
        for name in cupy
        if _major(packages[name]) < arrays.CUPY_MAJOR
    ]
    if len(cupy) > 1:
        found.append(f"{' and '.join(cupy)} are both installed, in one place: {way_out}")
    cuda = {"12" if name.endswith("12x") else "13": name for name in cupy}
    bindings = packages.get("cuda-bindings", "")
    if bindings and cuda and bindings.partition(".")[0] not in cuda:
        names = f"{cupy[0]} and cuda-bindings {bindings}"
        found.append(f"{names} are of different CUDA versions: {way_out}")
    if driver_cuda and _major(driver_cuda) < 13 and list(cuda) == ["13"]:
        found.append(
            f"cupy-cuda13x needs a driver that supports CUDA 13, this one supports {driver_cuda}: "
            "install 'cuswiglu[cuda12]' in a fresh environment, or update the driver"
        )
    return found


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _gpus() -> tuple[str, list[Gpu], str]:
    """Ask the driver: CUDA version, GPUs, and what is wrong, or empty."""
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
        arrays.cupy_module()
    except ImportError as error:
        return select.REFERENCE, str(error)
    if kernel_trouble:
        return select.PORTABLE, f"only with variant='cublas': {kernel_trouble}"
    first = gpus[0]
    if first.capability != "9.0":
        return select.PORTABLE, (
            f"{first.name} has compute capability {first.capability}, the kernels need 9.0 (Hopper)"
        )
    return "sm90", ""
