"""Which variant computes a problem: a pure function of the problem and the device."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from .problem import Problem
from .variant import Variant, variants

PORTABLE = "cublas"
REFERENCE = "numpy"
_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class DeviceInfo:
    """What selection needs to know of a CUDA device."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int

    @property
    def runs_kernels(self) -> bool:
        """sm_90a cubins run on compute capability 9.0 and nothing else."""
        return self.capability == (9, 0)


@dataclass(frozen=True)
class Choice:
    """What was chosen; `kernel` is None on the portable path and on the CPU."""

    backend: str  # "sm90", "cublas" or "numpy"
    variant: str
    kernel: Variant | None = None


def known_names(kernels: Sequence[Variant]) -> list[str]:
    """Every name `variant=` accepts."""
    families = dict.fromkeys(kernel.family for kernel in kernels)
    return ["auto", REFERENCE, PORTABLE, *families, *(kernel.name for kernel in kernels)]


def check_name(variant: str) -> None:
    """Refuse a name that no device knows, whatever the problem.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(variant, str):
        raise TypeError(f"variant must be a string, got {type(variant).__name__}")
    if variant in ("auto", REFERENCE, PORTABLE):
        return
    names = known_names(variants())
    if variant not in names:
        raise ValueError(f"variant must be one of {', '.join(names)}; got {variant!r}")


def select(
    problem: Problem,
    device: DeviceInfo | None,
    variant: str = "auto",
    kernels: Sequence[Variant] | None = None,
) -> Choice:
    """Choose the backend and the kernel for a problem.

    Parameters
    ----------
    problem : Problem
    device : DeviceInfo or None
        None for arrays on the CPU.
    variant : str
        "auto", "cublas", "numpy", a family, or one instance.
    kernels : sequence of Variant, optional
        What is compiled; the package's own by default.

    Raises
    ------
    ValueError
        If an explicit variant is unknown, cannot run on the device, or the problem breaks one of
        its limits.

    Warns
    -----
    UserWarning
        Under "auto" on a GPU that runs the kernels, when a limit sends the problem to the portable
        path.
    """
    if device is None:
        if variant not in ("auto", REFERENCE):
            check_name(variant)
            raise ValueError(
                f"variant {variant!r} needs arrays on a CUDA device, got arrays on the CPU: use "
                "variant='auto', or move them with cupy.asarray"
            )
        return Choice(REFERENCE, REFERENCE)
    if variant == REFERENCE:
        raise ValueError(
            "variant 'numpy' needs arrays on the CPU, got arrays on a CUDA device: use "
            "variant='auto', or move them with cupy.asnumpy"
        )
    if variant == PORTABLE or (variant == "auto" and not device.runs_kernels):
        return Choice(PORTABLE, PORTABLE)
    if kernels is None:
        kernels = variants()
    candidates = [k for k in kernels if variant in ("auto", k.family, k.name)]
    if not candidates:
        names = known_names(kernels)
        raise ValueError(f"variant must be one of {', '.join(names)}; got {variant!r}")
    if not device.runs_kernels:
        major, minor = device.capability
        raise ValueError(
            f"variant {variant!r} needs a Hopper GPU (compute capability 9.0), got {device.name} "
            f"({major}.{minor}): use variant='auto', which runs the portable path there"
        )
    obstacles = [kernel.obstacle(problem) for kernel in candidates]
    able = [k for k, obstacle in zip(candidates, obstacles, strict=True) if obstacle is None]
    if able:
        return _kernel(min(able, key=lambda kernel: cost(kernel, problem, device)))
    if variant == "auto":
        warnings.warn(
            f"cuswiglu takes the portable path: {obstacles[0]}", stacklevel=_callers_level()
        )
        return Choice(PORTABLE, PORTABLE)
    raise ValueError(f"variant {variant!r} cannot compute this problem: {obstacles[0]}")


def _callers_level() -> int:
    """How far up the stack the user's own call is."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level


def _kernel(kernel: Variant) -> Choice:
    return Choice("sm90", kernel.name, kernel)


# Of one Hopper SM: the datasheet's dense BF16 rate of 989.5 TFLOP/s on 132 SMs at 1.83 GHz.
FLOPS_PER_CYCLE = 4096
# Shared memory feeds the tensor cores 128 bytes a cycle.
SHARED_BYTES_PER_CYCLE = 128
# Measured with the prototype kernels: launch, first loads and last stores of a CTA.
PROLOGUE_CYCLES = 2500
# An element of the result: activation, conversion and store, by one warpgroup.
EPILOGUE_CYCLES_PER_ELEMENT = 0.2


def cost(kernel: Variant, problem: Problem, device: DeviceInfo) -> float:
    """Estimated cycles of a launch: waves of tiles, each bound by tensor cores or shared memory."""
    rows, columns = kernel.block_m * kernel.cluster_m, kernel.block_n * kernel.cluster_n
    clusters = -(-problem.m // rows) * -(-problem.n // columns)
    resident = device.multiprocessors // kernel.cluster_size
    waves = -(-clusters // resident)
    k_tiles = -(-problem.k // kernel.block_k)
    flops = 4 * kernel.block_m * kernel.block_n * kernel.block_k
    # Each 64-row WGMMA reads its own rows of X and all columns of the weights.
    row_blocks = kernel.block_m // 64
    shared = 2 * kernel.block_k * (kernel.block_m + row_blocks * 2 * kernel.block_n)
    step = max(flops / FLOPS_PER_CYCLE, shared / SHARED_BYTES_PER_CYCLE)
    epilogue = kernel.block_m * kernel.block_n * EPILOGUE_CYCLES_PER_ELEMENT
    if kernel.schedule == "pingpong":  # hidden behind the other warpgroup, but for the last tile
        return waves * k_tiles * step + epilogue + PROLOGUE_CYCLES
    return waves * (k_tiles * step + epilogue / 2) + PROLOGUE_CYCLES
