"""Devices: where arrays live, and the properties of a GPU that selection depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """Place where an array lives: the host, or one CUDA device."""

    kind: str  # "cpu" or "cuda"
    index: int = 0

    def __str__(self) -> str:
        return "the CPU" if self.kind == "cpu" else f"CUDA device {self.index}"


CPU = Device("cpu")
SHARED_BYTES = 227 << 10  # of a Hopper SM, for one CTA


@dataclass(frozen=True)
class DeviceInfo:
    """Facts of a CUDA device that selection needs.

    Attributes
    ----------
    name : str
        As the driver has it; tuned tables count for one name.
    capability : (int, int)
        Compute capability: (9, 0) for Hopper.
    multiprocessors : int
        Number of SMs.
    driver : str
        The CUDA version that the driver supports, as "12.9"; empty if it does not matter.

    Examples
    --------
    >>> import cuswiglu
    >>> cuswiglu.DeviceInfo("NVIDIA H200", (9, 0), 132).runs_kernels
    True
    >>> cuswiglu.DeviceInfo("NVIDIA A100", (8, 0), 108).runs_kernels
    False
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    driver: str = ""  # the CUDA version it supports, as "12.9"

    @property
    def runs_kernels(self) -> bool:
        """sm_90a cubins run on compute capability 9.0 and nothing else."""
        return self.capability == (9, 0)
