"""Which variant computes a problem: a pure function of the problem and the device."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from ..common.device import DeviceInfo
from ..common.stack import callers_level
from ..kernels.manifest import variants
from ..kernels.split import Split
from ..kernels.tile import TileVariant
from ..kernels.variant import Estimate, Variant
from ..problem import Problem
from . import portable_cost, tuned

PORTABLE = "cublas"
REFERENCE = "numpy"
#: Variant that a GatedMLP asks for under deterministic="batch"; no name that `variant=` accepts.
BATCH = "batch"
# A plain product whose tiles fill less of their waves than this is faster on cuBLAS, which splits K
# (H200: 0.59 of its speed where they fill 0.21, 0.91 at 0.85, 1.00 at 0.97).
EVEN_ENOUGH = 0.92


@dataclass(frozen=True)
class Choice:
    """Variant that was chosen, and why.

    Attributes
    ----------
    backend : str
        "sm90", "cublas" or "numpy".
    variant : str
        The kernel's name, or the backend's.
    kernel : Variant or None
        None on the portable path and on the CPU.
    raster_rows : int
        0 leaves a kernel of tiles its own.
    reason : str
    split : Split or None
        How a decode kernel's work is cut.
    """

    backend: str
    variant: str
    kernel: Variant | None = None
    raster_rows: int = 0
    reason: str = ""
    split: Split | None = None


def known_names(kernels: Sequence[Variant]) -> list[str]:
    """List every name that `variant=` accepts."""
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


def still_there(variant: str) -> str:
    """Replace a kernel that this version does not have by its family, to be selected anew.

    A program that was serialised by another version may name it.
    """
    kernels = variants()
    family = variant.split("_")[0]
    gone = all(kernel.name != variant for kernel in kernels)
    return family if gone and any(kernel.family == family for kernel in kernels) else variant


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
        "auto", "cublas", "numpy", a family, or one variant.
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
    if variant == BATCH:
        return _for_any_m(problem, device, variants() if kernels is None else kernels)
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
    if not candidates and variant != "auto":
        names = known_names(kernels)
        raise ValueError(f"variant must be one of {', '.join(names)}; got {variant!r}")
    if not device.runs_kernels:
        major, minor = device.capability
        raise ValueError(
            f"variant {variant!r} needs a Hopper GPU (compute capability 9.0), got {device.name} "
            f"({major}.{minor}): use variant='auto', which runs the portable path there"
        )
    able = [kernel for kernel in candidates if kernel.obstacle(problem) is None]
    if variant not in (kernel.name for kernel in able):
        able = prune(problem, able)
    if able:
        return _best(problem, device, able, portable_too=variant == "auto")
    obstacle = _obstacle(problem, candidates)
    if variant == "auto":
        warnings.warn(f"cuswiglu takes the portable path: {obstacle}", stacklevel=callers_level())
        return Choice(PORTABLE, PORTABLE)
    raise ValueError(f"variant {variant!r} cannot compute this problem: {obstacle}")


def _obstacle(problem: Problem, kernels: Sequence[Variant]) -> str:
    """Name the obstacle of the kernels that fit best: those made for such weights, if any."""
    if not kernels:
        return "no kernel is compiled"
    fitting = [kernel for kernel in kernels if kernel.takes(problem)] or kernels
    return str(fitting[0].obstacle(problem))


def _best(
    problem: Problem, device: DeviceInfo, able: Sequence[Variant], *, portable_too: bool
) -> Choice:
    """Take the tuned table's entry where it has one among `able`, else the cheapest estimate.

    `portable_too`: whether the table may choose cuBLAS.
    """
    entry = tuned.lookup(problem, device.name, measured_with(device))
    if entry is not None:
        if entry.variant == PORTABLE and portable_too:
            return Choice(PORTABLE, PORTABLE, reason=f"measured: {entry.us:.1f} us")
        for kernel in able:
            if kernel.name == entry.variant and kernel.launchable(problem, entry.split):
                reason = f"measured: {entry.us:.1f} us"
                return Choice("sm90", kernel.name, kernel, entry.raster_rows, reason, entry.split)
    best, *others = estimates(problem, device, able)
    if portable_too and not problem.gated:
        reason = _cublas_instead(problem, best, others)
        if reason:
            return Choice(PORTABLE, PORTABLE, reason=reason)
    reason = f"estimated: {best.us:.1f} us in {best.waves:.2f} waves"
    return Choice("sm90", best.kernel.name, best.kernel, 0, reason, best.split)


def _cublas_instead(problem: Problem, best: Estimate, others: Sequence[Estimate]) -> str:
    """Tell why cuBLAS computes a product with one weight; empty if the best kernel does."""
    if best.split is not None:  # K is cut already
        return ""
    if any(_divides(one, problem) and one.evenness >= EVEN_ENOUGH for one in (best, *others)):
        return ""
    if _divides(best, problem):
        return f"tiles fill {best.evenness:.0%} of their waves, and cuBLAS splits K"
    cublas = portable_cost.microseconds(problem)
    if best.us <= cublas:
        return ""
    return f"estimated: {cublas:.1f} us, where {best.kernel.name} takes {best.us:.1f}"


def _divides(estimate: Estimate, problem: Problem) -> bool:
    """Whether it is of a tile kernel, whose tiles divide M."""
    kernel = estimate.kernel
    return isinstance(kernel, TileVariant) and problem.m % kernel.block_m == 0


def _for_any_m(problem: Problem, device: DeviceInfo | None, kernels: Sequence[Variant]) -> Choice:
    """Choose a kernel that is cut in one way whatever M is, so that sums have one order."""
    asked = 'deterministic="batch"'
    if device is None or not device.runs_kernels:
        where = "arrays on the CPU" if device is None else f"arrays on {device.name}"
        raise ValueError(
            f"{asked} needs arrays on a Hopper GPU (compute capability 9.0), got {where}: leave it "
            "out"
        )
    invariant = [kernel for kernel in kernels if kernel.batch_invariant]
    able = [kernel for kernel in invariant if kernel.obstacle(problem) is None]
    for kernel in prune(problem, able):
        split = kernel.split_for_any_m(able, problem, device.multiprocessors)
        if split is not None:
            return Choice("sm90", kernel.name, kernel, 0, "the same sums for any M", split)
    raise ValueError(f"{asked} cannot compute this problem: {_obstacle(problem, invariant)}")


def prune(problem: Problem, able: Sequence[Variant]) -> list[Variant]:
    """Keep the kernels that selection considers, of those that can compute a problem."""
    settling = [kernel for kernel in able if kernel.settles(problem)]
    return [kernel for kernel in settling or able if kernel.considered(problem, able)]


def estimates(problem: Problem, device: DeviceInfo, kernels: Sequence[Variant]) -> list[Estimate]:
    """Estimate each kernel by the cost model; list them, cheapest first."""
    user, packaged = tuned.tables()
    here = (device.name, measured_with(device))
    own = user.rates if (user.gpu, user.measured_with) == here else {}
    rates = {**packaged.rates, **own}
    found = (kernel.estimate(problem, device.multiprocessors, rates) for kernel in kernels)
    able = [estimate for estimate in found if estimate is not None]
    return sorted(able, key=lambda estimate: (estimate.us, estimate.kernel.name))


def measured_with(device: DeviceInfo) -> str:
    """Name what a measurement here is made with, and counts for: these kernels, this driver."""
    return f"kernels {fingerprint_of(variants())}, driver {device.driver}"


def fingerprint_of(kernels: Sequence[Variant]) -> str:
    """Hash compiled kernels, in 16 digits."""
    import hashlib

    hashes = "".join(sorted(kernel.sha256 for kernel in kernels))
    return hashlib.sha256(hashes.encode()).hexdigest()[:16]
