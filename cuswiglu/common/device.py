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


@dataclass(frozen=True)
class DeviceInfo:
    """Properties of a CUDA device that selection depends on.

    Attributes
    ----------
    name : str
        As the driver gives it; tuned tables are kept by it.
    capability : tuple of int
        Compute capability, for instance (9, 0).
    multiprocessors : int
    driver : str
        CUDA version that the driver supports, for instance "12.9".
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    driver: str = ""

    @property
    def runs_kernels(self) -> bool:
        """Whether sm_90a cubins run here: on compute capability 9.0 and on nothing else."""
        return self.capability == (9, 0)
