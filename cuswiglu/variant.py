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
MANIFEST_FORMAT = 6
#: Families for few tokens, of gate and up and of one weight.
DECODE_FAMILIES = ("decode", "decode-plain")
SHARED_BYTES = 227 << 10  # of an SM, for one CTA
PLAIN_FAMILIES = ("plain", "decode-plain")
#: What is behind a weight layout in `Variant.entries`: of a dtype, then of extras.
_DTYPES = {"bfloat16": "", "float16": "_f16"}
_EXTRAS = {False: "", True: "_any"}
REBUILD = "rebuild with `pip install --force-reinstall --no-deps .` in the source tree"


class KernelsUnavailableError(RuntimeError):
    """The compiled kernels are missing or damaged."""


@dataclass(frozen=True)
class Variant:
    """A compiled kernel instance: a `TileVariant` or a `DecodeVariant`.

    Attributes
    ----------
    name : str
        family_schedule_tile_cluster, or family_tokens.
    family : str
    block_k : int
        A TMA box along K (elements).
    threads : int
        Per CTA.
    n_multiple, k_multiple : int
        N and K must be multiples of these (elements).
    alignment_bytes : int
        Of every base address and row stride.
    entries : tuple of (str, str)
        Weight layout ("k", "n", or "p8" and "p1" for packed weights), with "_f16" behind it for
        FP16, and "_any" for biases and activations other than SiLU -> entry point.
    registers : int
        A thread at entry.
    cubin, sha256 : str
        The file's path, and the hash of its content.
    """

    name: str
    family: str
    block_k: int
    threads: int
    n_multiple: int
    k_multiple: int
    alignment_bytes: int
    entries: tuple[tuple[str, str], ...]
    registers: int
    cubin: str
    sha256: str

    def entry(self, major: str, dtype: str = "bfloat16", *, extras: bool = False) -> str:
        """The entry point for weights that lie so, and arrays of a dtype; as `Problem.extras`."""
        return dict(self.entries)[major + _DTYPES[dtype] + _EXTRAS[extras]]

    @property
    def layouts(self) -> tuple[str, ...]:
        """Weight layouts that it is made for; for SiLU in BF16 all of them."""
        return tuple(key for key, _ in self.entries if "_" not in key)

    @property
    def gated(self) -> bool:
        """Whether it computes gate and up; the others compute the down projection."""
        return self.family not in PLAIN_FAMILIES

    @property
    def most_shared(self) -> int:
        """Dynamic shared memory that a CTA may ask for (bytes)."""
        raise NotImplementedError

    @property
    def tiles_a_cluster(self) -> int:
        """Tiles of the result that a cluster computes at once."""
        return 1

    def takes(self, problem: Problem) -> bool:
        """Whether it is made for this kind of weights: one, a pair, packed, along K or N."""
        return self.gated == problem.gated and problem.major in self.layouts

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
        if problem.major not in self.layouts:
            if problem.packed:
                return "packed weights need a kernel of the interleave family"
            if self.family == "interleave":
                return "the weights must be packed (cuswiglu.pack)"
            return "the weights must be contiguous along K (a checkpoint's weight.T)"
        keys = dict(self.entries)
        if problem.major + _DTYPES[problem.dtype] not in keys:
            return f"{self.name} computes bfloat16 only, got {problem.dtype}"
        if problem.major + _DTYPES[problem.dtype] + _EXTRAS[problem.extras] not in keys:
            return f"{self.name} computes SiLU only, without biases"
        return problem.tma_obstacle()


@dataclass(frozen=True)
class TileVariant(Variant):
    """A kernel of tiles of the result: tokens are the MMA's M.

    Attributes
    ----------
    schedule : str
        "pingpong" or "cooperative".
    block_m, block_n : int
        The tile of the result that one CTA computes (elements).
    cluster_m : int
        CTAs of a cluster, along M.
    stages : int
        Tiles of X and of the weights in flight.
    shared_bytes : int
        Dynamic shared memory per CTA.
    raster_rows : int
        Rows of clusters walked before the next column, unless selection says otherwise.
    widths : tuple of (str, tuple of int)
        Weight layout -> widths that a column of tiles can have, `block_n` first.
    boxes : tuple of (str, (int, int, int))
        TMA box of each operand, as (contiguous elements, rows, bytes of swizzle span).
    fitted_boxes : tuple of str
        Weight layouts whose boxes have just the rows of a launch's widest tiles.
    """

    schedule: str
    block_m: int
    block_n: int
    cluster_m: int
    stages: int
    shared_bytes: int
    raster_rows: int
    widths: tuple[tuple[str, tuple[int, ...]], ...]
    boxes: tuple[tuple[str, tuple[int, int, int]], ...]
    fitted_boxes: tuple[str, ...]

    @property
    def most_shared(self) -> int:
        return self.shared_bytes

    @property
    def tiles_a_cluster(self) -> int:
        return self.cluster_m

    def box(self, operand: str) -> tuple[int, int, int]:
        return dict(self.boxes)[operand]

    def weight_box(self, major: str, columns: Columns) -> tuple[int, int, int]:
        """The TMA box of a weight, in a launch whose result is cut so."""
        contiguous, rows, span = self.box(f"weight_{major}")
        return contiguous, columns.wide_width if major in self.fitted_boxes else rows, span

    def rows(self, m: int) -> int:
        """Rows of clusters that cover M."""
        return -(-m // (self.block_m * self.cluster_m))

    def columns(self, m: int, n: int, major: str, resident: int) -> Columns:
        """How to cut N into columns of tiles when `resident` clusters run at once."""
        return columns.best(n, self.rows(m), resident, dict(self.widths)[major])


@dataclass(frozen=True)
class DecodeVariant(Variant):
    """A kernel for few tokens: rows of the weights are the MMA's M, tokens its N.

    How its work is cut is said at each launch (`decode.Split`).

    Attributes
    ----------
    tokens : int
        Columns of the MMA; more tokens are walked in tiles of so many.
    mma_rows, max_rows : int
        Rows of the weights that a warpgroup multiplies at once, and that a tile may have.
    max_ranks : int
        CTAs of a cluster, which share K.
    max_stages : int
        Steps of K in flight.
    ctas : int
        CTAs that find registers on an SM.
    barrier_bytes, chunk : int
        What shared memory is computed with: of barriers, and tokens whose sums are sent at a time.
    """

    tokens: int
    mma_rows: int
    max_rows: int
    max_ranks: int
    max_stages: int
    ctas: int
    barrier_bytes: int
    chunk: int

    @property
    def most_shared(self) -> int:
        return SHARED_BYTES


def _parse(row: dict[str, Any], folder: Path) -> Variant:
    entries = row["entries"]
    common = {field: row[field] for field in ("name", "family", "block_k", "threads", "sha256")}
    common |= {
        **row["limits"],
        "cubin": str(folder / row["cubin"]),
        "entries": tuple((key, entry["name"]) for key, entry in entries.items()),
        "registers": max(entry["registers"] for entry in entries.values()),
    }
    if row["family"] in DECODE_FAMILIES:
        own = "tokens mma_rows max_rows max_ranks max_stages ctas barrier_bytes chunk"
        return DecodeVariant(**common, **{field: row[field] for field in own.split()})
    own = "schedule block_m block_n cluster_m stages shared_bytes raster_rows"
    return TileVariant(
        **common,
        **{field: row[field] for field in own.split()},
        widths=tuple((major, tuple(widths)) for major, widths in row["widths"].items()),
        boxes=tuple((operand, (box[0], box[1], box[2])) for operand, box in row["boxes"].items()),
        fitted_boxes=tuple(row["fitted_boxes"]),
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
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
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
