"""Builds all cubins into cuswiglu/cubins, with a manifest; skips what is unchanged."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cuswiglu.kernels.manifest import MANIFEST_FORMAT

from . import compile as compiler
from . import toolchain
from .variants import ALL_VARIANTS, VariantSource
from .variants.base import BLOCK_K
from .variants.entries import record

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels_cu"
OUTPUT = ROOT / "cuswiglu" / "cubins"
ABLATED = ROOT / "build" / "ablations"
HEADERS = ".cuh"
NOTES = ".built.json"  # beside the cubins: what need not be compiled again

Row = dict[str, Any]


def sha256(data: bytes) -> str:
    """Hash as the manifest writes it."""
    return hashlib.sha256(data).hexdigest()


def source_hash(variant: VariantSource, versions: dict[str, str], kernels: Path = KERNELS) -> str:
    """Hash everything a variant's cubin depends on: sources, its row, options, toolchain."""
    digest = hashlib.sha256()
    for path in sorted(path for path in kernels.rglob("*") if path.suffix == HEADERS):
        digest.update(path.relative_to(kernels).as_posix().encode() + b"\0" + path.read_bytes())
    inputs = [
        variant.translation_unit(),
        sorted(versions.items()),
        compiler.PROGRAM_OPTIONS,
        compiler.LINKER_OPTIONS,
    ]
    digest.update(json.dumps(inputs, sort_keys=True).encode())
    return digest.hexdigest()


def manifest_row(variant: VariantSource, source: str, built: Row) -> Row:
    """Make a manifest row: everything the library needs to choose and launch a variant."""
    return {
        "name": variant.name,
        "family": variant.family,
        "block_k": BLOCK_K,
        **variant.facts(),
        "arguments": [list(argument) for argument in variant.arguments],
        "limits": {"n_multiple": 8, "k_multiple": 8, "alignment_bytes": 16},
        "cubin": f"{variant.name}.cubin",
        "source_sha256": source,
        **built,
    }


def built_part(variant: VariantSource, compiled: compiler.Compiled) -> Row:
    """Make the part of a manifest row that only the compiler knows."""
    entries = []
    for entry in variant.entries:
        found = compiled.resources[entry.name]
        entries.append(
            record(entry)
            | {
                "registers": found.registers,
                "spill_bytes": found.spill_store_bytes + found.spill_load_bytes,
            }
        )
    return {
        "bytes": len(compiled.cubin),
        "sha256": sha256(compiled.cubin),
        "entries": entries,
    }


def _reusable(output: Path, sources: dict[str, str]) -> dict[str, Row]:
    """Read what earlier builds, finished or not, noted of variants that have not changed since."""
    try:
        notes = json.loads((output / NOTES).read_text())
        return {
            name: built
            for name, (source, built) in notes.items()
            if source == sources.get(name) and built["sha256"] == _hash_of(output / f"{name}.cubin")
        }
    except (AttributeError, OSError, ValueError, KeyError, TypeError):
        return {}


def _hash_of(path: Path) -> str | None:
    return sha256(path.read_bytes()) if path.is_file() else None


def _write(path: Path, data: bytes) -> None:
    """Write whole or not at all, so that a stopped build leaves no half cubin."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    """Let a worker end when the build is killed: each holds gigabytes."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _compile_all(
    todo: Sequence[VariantSource],
) -> Iterator[tuple[VariantSource, compiler.Compiled]]:
    """Compile on all cores; yields each variant as it is done."""
    # Fresh processes: NVRTC is loaded in each, whatever this one has loaded already.
    context = multiprocessing.get_context("spawn")
    pool_of = concurrent.futures.ProcessPoolExecutor
    with pool_of(cores(), mp_context=context, initializer=_end_with_parent) as pool:
        jobs = {pool.submit(compiler.compile_variant, i, KERNELS): i for i in todo}
        try:
            for job in concurrent.futures.as_completed(jobs):
                yield jobs[job], job.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def build(
    output: Path = OUTPUT,
    variants: Sequence[VariantSource] = ALL_VARIANTS,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> Path:
    """Compile `variants` into `output` and return the manifest's path.

    Raises
    ------
    build_scripts.compile.CompileError
        If a variant does not compile or spills; the manifest is not written then.
    build_scripts.toolchain.ToolchainError
        If a wheel is missing.
    """
    versions = toolchain.versions()
    output.mkdir(parents=True, exist_ok=True)
    sources = {variant.name: source_hash(variant, versions) for variant in variants}
    built = _reusable(output, sources)
    todo = [variant for variant in variants if variant.name not in built]
    if todo:
        say(f"compiling {len(todo)} of {len(variants)} kernels on {cores()} cores")
    for number, (variant, compiled) in enumerate(_compile_all(todo), start=1):
        part = built[variant.name] = built_part(variant, compiled)
        _write(output / f"{variant.name}.cubin", compiled.cubin)
        notes = {name: (sources[name], part) for name, part in built.items()}
        _write(output / NOTES, json.dumps(notes).encode())
        registers, spilled = (
            max(entry[what] for entry in part["entries"]) for what in ("registers", "spill_bytes")
        )
        say(
            f"[{number}/{len(todo)}] {variant.name}: {registers} registers, {spilled} bytes "
            f"spilled, {part['bytes'] / 1024:.0f} KiB, {compiled.seconds:.0f} s"
        )
    rows = [manifest_row(i, sources[i.name], built[i.name]) for i in variants]
    for stale in set(output.glob("*.cubin")) - {output / row["cubin"] for row in rows}:
        stale.unlink()
    manifest = {
        "format": MANIFEST_FORMAT,
        "arch": compiler.ARCH,
        "toolchain": versions,
        "variants": rows,
    }
    path = output / "manifest.json"
    _write(path, (json.dumps(manifest, indent=1) + "\n").encode())
    total = sum(row["bytes"] for row in rows)
    say(f"{len(variants)} kernels, {total / 1024:.0f} KiB of cubins")
    return path
