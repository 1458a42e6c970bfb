"""Variants: one row per compiled kernel, read from the manifest that the build writes."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import columns
from .columns import Columns
from .problem import Problem

CUBINS = Path(__file__).parent / "cubins"
MANIFEST_FORMAT = 2
REBUILD = "rebuild with `pip install --force-reinstall --no-deps .` in the source tree"


class KernelsUnavailableError(RuntimeError):
    """The compiled kernels are missing or damaged."""


@dataclass(frozen=True)
class Variant:
    """A compiled kernel instance.

    Attributes
    ----------
    name : str
        family_schedule_tile_cluster.
    family, schedule : str
    block_m, block_n, block_k : int
        The tile of the result that one CTA computes, and the step along K (elements).
    cluster_m : int
        CTAs of a cluster, along M.
    stages : int
        Tiles of X and of the weights in flight.
    threads : int
        Per CTA.
    shared_bytes : int
        Dynamic shared memory per CTA.
    raster_rows : int
        Rows of clusters walked before the next column, unless selection says otherwise.
    n_multiple, k_multiple : int
        N and K must be multiples of these (elements).
    alignment_bytes : int
        Of every base address and row stride.
    entries : tuple of (str, str)
        Weight layout ("k", "n", or "p8" and "p1" for packed weights) -> entry point.
    widths : tuple of (str, tuple of int)
        Weight layout -> widths that a column of tiles can have, `block_n` first.
    boxes : tuple of (str, (int, int))
        TMA box of each operand, as (contiguous elements, rows, bytes of swizzle span).
    registers : int
        A thread at entry.
    cubin, sha256 : str
        The file's path, and the hash of its content.
    """

    name: str
    family: str
    schedule: str
    block_m: int
    block_n: int
    block_k: int
    cluster_m: int
    stages: int
    threads: int
    shared_bytes: int
    raster_rows: int
    n_multiple: int
    k_multiple: int
    alignment_bytes: int
    entries: tuple[tuple[str, str], ...]
    widths: tuple[tuple[str, tuple[int, ...]], ...]
    boxes: tuple[tuple[str, tuple[int, int, int]], ...]
    registers: int
    cubin: str
    sha256: str

    def entry(self, major: str) -> str:
        return dict(self.entries)[major]

    def box(self, operand: str) -> tuple[int, int, int]:
        return dict(self.boxes)[operand]

    @property
    def gated(self) -> bool:
        """Whether it computes a SwiGLU; "plain" kernels compute the down projection."""
        return self.family != "plain"

    def rows(self, m: int) -> int:
        """Rows of clusters that cover M."""
        return -(-m // (self.block_m * self.cluster_m))

    def columns(self, m: int, n: int, major: str, resident: int) -> Columns:
        """How to cut N into columns of tiles when `resident` clusters run at once."""
        return columns.best(n, self.rows(m), resident, dict(self.widths)[major])

    def takes(self, problem: Problem) -> bool:
        """Whether it is made for this kind of weights: one, a pair, packed, along K or N."""
        return self.gated == problem.gated and problem.major in dict(self.entries)

    def obstacle(self, problem: Problem) -> str | None:
        """The first limit that a problem breaks, in words, or None."""
        if self.gated != problem.gated:
            return (
                f"{self.name} computes gate and up, this is a product with one weight"
                if self.gated
                else f"{self.name} computes a product with one weight, this has gate and up"
            )
        if problem.n % self.n_multiple:
            return f"N must be a multiple of {self.n_multiple}, got {problem.n}"
        if problem.k % self.k_multiple:
            return f"K must be a multiple of {self.k_multiple}, got {problem.k}"
        if problem.major == "mixed":
            return (
                "w_gate and w_up must have the same layout, both contiguous along K or both along N"
            )
        if problem.major not in dict(self.entries):
            if problem.packed:
                return "packed weights need a kernel of the interleave family"
            if self.family == "interleave":
                return "the weights must be packed (cuswiglu.pack)"
            return "the weights must be contiguous along K (a checkpoint's weight.T)"
        return problem.tma_obstacle()


def _parse(row: dict[str, Any], folder: Path) -> Variant:
    entries = row["entries"]
    plain = (
        "name family schedule block_m block_n block_k cluster_m stages threads shared_bytes "
        "raster_rows sha256"
    )
    return Variant(
        **{field: row[field] for field in plain.split()},
        **row["limits"],
        cubin=str(folder / row["cubin"]),
        entries=tuple((major, entry["name"]) for major, entry in entries.items()),
        widths=tuple((major, tuple(widths)) for major, widths in row["widths"].items()),
        boxes=tuple((operand, (box[0], box[1], box[2])) for operand, box in row["boxes"].items()),
        registers=max(entry["registers"] for entry in entries.values()),
    )


@functools.cache
def manifest(folder: Path = CUBINS) -> dict[str, Any]:
    """The build's manifest.

    Raises
    ------
    KernelsUnavailableError
        If it is missing or damaged.
    """
    path = folder / "manifest.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        if content["format"] != MANIFEST_FORMAT:
            raise ValueError(f"format {content['format']}, this version reads {MANIFEST_FORMAT}")
    except FileNotFoundError as error:
        raise KernelsUnavailableError(
            f"the kernel manifest {path} is missing, so no kernel can be loaded: {REBUILD}"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KernelsUnavailableError(
            f"the kernel manifest {path} is damaged ({error}): {REBUILD}"
        ) from error
    return content


@functools.cache
def variants(folder: Path = CUBINS) -> tuple[Variant, ...]:
    """Every compiled kernel, with its limits; by default the package's own.

    Returns
    -------
    tuple of Variant

    Raises
    ------
    KernelsUnavailableError
        If the manifest is missing or damaged.
    """
    try:
        return tuple(_parse(row, folder) for row in manifest(folder)["instances"])
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise KernelsUnavailableError(
            f"the kernel manifest {folder / 'manifest.json'} is damaged ({error!r}): {REBUILD}"
        ) from error


def cubin(variant: Variant) -> bytes:
    """A variant's machine code, checked against the manifest's hash.

    Raises
    ------
    KernelsUnavailableError
        If the file is missing or differs from what was built.
    """
    import hashlib

    path = Path(variant.cubin)
    try:
        code = path.read_bytes()
    except OSError as error:
        raise KernelsUnavailableError(
            f"the cubin {path} of {variant.name} cannot be read ({error.strerror}): {REBUILD}"
        ) from error
    found = hashlib.sha256(code).hexdigest()
    if found != variant.sha256:
        raise KernelsUnavailableError(
            f"the cubin {path} of {variant.name} is damaged: SHA-256 {found[:16]}..., the manifest "
            f"says {variant.sha256[:16]}...: {REBUILD}"
        )
    return code
