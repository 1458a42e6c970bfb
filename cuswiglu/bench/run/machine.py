"""The machine a benchmark runs on: what is recorded of it."""

from __future__ import annotations

import datetime
import hashlib
from typing import Any

from ... import environment
from ...arrays import cupy_module
from ...kernels import manifest
from ..record import Session
from . import nvidia_smi

#: Packages whose versions are recorded beside those of `environment`.
PACKAGES = (
    "triton",
    "quack-kernels",
    "nvidia-cutlass-dsl",
    "flash-swiglu-mlp",
    "tokamax",
)


def bus_id() -> str:
    """Find the PCI bus id of the current CUDA device.

    Raises
    ------
    RuntimeError
        If there is no CUDA GPU.
    """
    here = environment.collect()
    if not here.gpus:
        raise RuntimeError(f"the benchmark needs a CUDA GPU: {here.reason}")
    return str(cupy_module().cuda.Device().pci_bus_id)


def session(gpu: str) -> Session:
    """Look at the machine; call it before this process computes on the GPU."""
    warnings, identity = [], {}
    try:
        warnings = nvidia_smi.busy(gpu)
        identity = nvidia_smi.identity(gpu)
    except nvidia_smi.SmiError as error:
        warnings = [f"no clocks, power or load are recorded: {error}"]
    here = environment.collect()
    first: dict[str, Any] = {"name": "no GPU"}
    if here.gpus:
        first = {"name": here.gpus[0].name, "multiprocessors": here.gpus[0].multiprocessors}
    return Session(
        started=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        gpu=first | identity,
        environment=_described(here),
        kernels=_kernels(),
        warnings=warnings,
    )


def _described(here: environment.Environment) -> dict[str, Any]:
    described = here.as_dict()
    described["packages"] |= {
        name: version for name in PACKAGES if (version := environment.version_of(name))
    }
    return described


def _kernels() -> str:
    """Hash all cubins: two sessions with the same one timed the same kernels."""
    try:
        hashes = [kernel.sha256 for kernel in manifest.variants()]
    except manifest.KernelsUnavailableError:
        return ""
    return hashlib.sha256(" ".join(sorted(hashes)).encode()).hexdigest()[:16]
