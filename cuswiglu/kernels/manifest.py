"""Variants: one row per compiled kernel, read from the manifest that the build writes."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

from ..problem import Layout, Specialisation
from .decode import DecodeVariant
from .tile import TileVariant
from .variant import DECODE_FAMILIES, PLAIN_FAMILIES, Entry, Variant

CUBINS = Path(__file__).parent.parent / "cubins"
MANIFEST_FORMAT = 6
REBUILD = "rebuild with `pip install --force-reinstall --no-deps .` in the source tree"


class KernelsUnavailableError(RuntimeError):
    """The compiled kernels are missing or damaged."""


_INPUTS = [("x", "tensor_map"), ("w_first", "tensor_map"), ("w_second", "tensor_map")]
_SIZES = [
    *(("b_first", "pointer"), ("b_second", "pointer")),
    *(("m", "int32"), ("n", "int32"), ("k", "int32")),
]
_LAST = [
    *(("weights_ahead", "int32"), ("activation", "int32")),
    *(
        ("linear", "float32"),
        ("cubic", "float32"),
        ("limit", "float32"),
        ("up_constant", "float32"),
    ),
]
_TILES = [
    ("raster_rows", "int32"),
    ("wide", "int32"),
    ("wide_width", "int32"),
    ("narrow_width", "int32"),
]
_SPLIT = [("out_stride", "int64"), ("rows", "int32"), ("stages", "int32")]


def _of_format_7(row: dict[str, Any]) -> dict[str, Any]:
    """A row of format 6, whose entries have keys, as one of format 7."""
    decode = row["family"] in DECODE_FAMILIES
    out = ("out", "pointer" if decode else "tensor_map")
    arguments = [*_INPUTS, out, *_SIZES, *(_SPLIT if decode else _TILES), *_LAST]
    entries = []
    for key, entry in row["entries"].items():
        layout, *rest = key.split("_")
        element = "float16" if "f16" in rest else "bfloat16"
        one = "none" if row["family"] in PLAIN_FAMILIES else "silu"
        fields = {"epilogue": "general" if "any" in rest else one, "scales": "none"}
        operands = dict.fromkeys(("x", "w", "out"), element)
        entries.append({"layout": layout, **operands, **fields, "grouped": False, **entry})
    return {**row, "entries": entries, "arguments": arguments}


def _entry(row: dict[str, Any]) -> Entry:
    asked = {field.name: row[field.name] for field in dataclasses.fields(Specialisation)}
    return Entry(Specialisation(**asked | {"layout": Layout(row["layout"])}), row["name"])


def _parse(row: dict[str, Any], folder: Path) -> Variant:
    row = _of_format_7(row)
    entries = row["entries"]
    common = {field: row[field] for field in ("name", "family", "block_k", "threads", "sha256")}
    common |= {
        **row["limits"],
        "cubin": str(folder / row["cubin"]),
        "entries": tuple(_entry(entry) for entry in entries),
        "arguments": tuple((name, kind) for name, kind in row["arguments"]),
        "registers": max(entry["registers"] for entry in entries),
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
def read_manifest(folder: Path = CUBINS) -> dict[str, Any]:
    """The build's manifest.

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

    Returns
    -------
    tuple of Variant

    Raises
    ------
    KernelsUnavailableError
        If the manifest is missing or damaged.
    """
    try:
        return tuple(_parse(row, folder) for row in read_manifest(folder)["instances"])
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
