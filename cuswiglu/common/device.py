"""Devices: where arrays live, and what selection needs to know of a GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """Where an array lives: the host, or one CUDA device."""

    kind: str  # "cpu" or "cuda"
    index: int = 0

    def __str__(self) -> str:
        return "the CPU" if self.kind == "cpu" else f"CUDA device {self.index}"


CPU = Device("cpu")


@dataclass(frozen=True)
class DeviceInfo:
    """What selection needs to know of a CUDA device."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    driver: str = ""  # the CUDA version it supports, as "12.9"

    @property
    def runs_kernels(self) -> bool:
        """sm_90a cubins run on compute capability 9.0 and nothing else."""
        return self.capability == (9, 0)
