"""Variants: one row per compiled kernel, read from the manifest that the build writes."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from ..problem import EntryPoint, Layout
from .decode import DecodeVariant
from .resident import ResidentVariant
from .swapped import SwappedVariant
from .tile import TileVariant
from .variant import Variant

CUBINS = Path(__file__).parent.parent / "cubins"
MANIFEST_FORMAT = 9
REBUILD = "rebuild with `pip install --force-reinstall --no-deps .` in the source tree"


class KernelsUnavailableError(RuntimeError):
    """The compiled kernels are missing or damaged.

    Examples
    --------
    >>> import cuswiglu
    >>> try:
    ...     kernels = cuswiglu.variants()
    ... except cuswiglu.KernelsUnavailableError as error:
    ...     print("portable path only:", error)
    """


def _entry(row: dict[str, Any]) -> EntryPoint:
    asked = "x w out scales epilogue grouped name"
    return EntryPoint(Layout(row["layout"]), **{field: row[field] for field in asked.split()})


def _boxes(row: dict[str, Any]) -> tuple[tuple[str, tuple[int, int, int]], ...]:
    return tuple((operand, (box[0], box[1], box[2])) for operand, box in row["boxes"].items())


def _parse(row: dict[str, Any], folder: Path) -> Variant:
    entries = row["entries"]
    common = {field: row[field] for field in ("name", "family", "block_k", "threads", "sha256")}
    common |= {
        **row["limits"],
        "cubin": str(folder / row["cubin"]),
        "entries": tuple(_entry(entry) for entry in entries),
        "arguments": tuple((name, kind) for name, kind in row["arguments"]),
        "registers": max(entry["registers"] for entry in entries),
    }
    if row["kind"] == "swapped":
        own = "fewest most block_n cluster_n raster_rows mma_rows fixed_bytes max_stages"
        return SwappedVariant(**common, **{field: row[field] for field in own.split()})
    if row["kind"] == "decode":
        own = "tokens mma_rows max_rows max_ranks max_stages ctas barrier_bytes chunk"
        return DecodeVariant(**common, **{field: row[field] for field in own.split()})
    if row["kind"] == "resident":
        own = "block_m block_n fixed_bytes weight_bytes x_bytes max_stages max_slices"
        return ResidentVariant(
            **common, **{field: row[field] for field in own.split()}, boxes=_boxes(row)
        )
    own = "schedule block_m block_n cluster_m stages shared_bytes raster_rows"
    return TileVariant(
        **common,
        **{field: row[field] for field in own.split()},
        widths=tuple((major, tuple(widths)) for major, widths in row["widths"].items()),
        boxes=_boxes(row),
        fitted_boxes=tuple(row["fitted_boxes"]),
    )


@functools.cache
def read_manifest(folder: Path = CUBINS) -> dict[str, Any]:
    """Read the build's manifest.

    Raises
    ------
    KernelsUnavailableError
        If it is missing or damaged.
    """
    path = folder / "manifest.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if found["format"] != MANIFEST_FORMAT:
            raise ValueError(f"format {found['format']}, this version reads {MANIFEST_FORMAT}")
    except FileNotFoundError as error:
        raise KernelsUnavailableError(
            f"the kernel manifest {path} is missing, so no kernel can be loaded: {REBUILD}"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise KernelsUnavailableError(
            f"the kernel manifest {path} is damaged ({error}): {REBUILD}"
        ) from error
    return found


@functools.cache
def variants(folder: Path = CUBINS) -> tuple[Variant, ...]:
    """Every compiled kernel, with its limits; by default the package's own.

    Parameters
    ----------
    folder : pathlib.Path
        Where the manifest and the cubins lie.

    Returns
    -------
    tuple of Variant

    Raises
    ------
    KernelsUnavailableError
        If the manifest is missing or damaged.

    Examples
    --------
    >>> import cuswiglu
    >>> sorted({kernel.family for kernel in cuswiglu.variants()})
    ['decode', 'decode-plain', 'dual', 'interleave', 'plain', 'sync']
    """
    try:
        return tuple(_parse(row, folder) for row in read_manifest(folder)["variants"])
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise KernelsUnavailableError(
            f"the kernel manifest {folder / 'manifest.json'} is damaged ({error!r}): {REBUILD}"
        ) from error


def cubin(variant: Variant) -> bytes:
    """Read a variant's machine code, checked against the manifest's hash.

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
