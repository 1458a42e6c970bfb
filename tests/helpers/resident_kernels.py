"""The resident kernel as the build's table has it, and problems for it."""

from __future__ import annotations

import dataclasses

from build_scripts.variants.base import BLOCK_K
from build_scripts.variants.resident import RESIDENT_VARIANTS, ResidentSource
from cuswiglu.kernels.resident import ResidentVariant
from cuswiglu.problem import Layout
from tests.helpers.problems import problem

PROBLEM = problem()


def kernel_of(source: ResidentSource) -> ResidentVariant:
    """The kernel that is built from a row of the table."""
    facts = {name: fact for name, fact in source.facts().items() if name not in ("kind", "boxes")}
    return ResidentVariant(
        name=source.name,
        family=source.family,
        block_k=BLOCK_K,
        n_multiple=8,
        k_multiple=8,
        alignment_bytes=16,
        entries=source.entries,
        arguments=source.arguments,
        registers=96,
        cubin="",
        sha256="",
        boxes=tuple((name, tuple(box)) for name, box in source.boxes().items()),
        **facts,
    )


(SOURCE,) = RESIDENT_VARIANTS
KERNEL = kernel_of(SOURCE)


def asked_of(m, n, k, major="k"):
    """A problem of these sizes."""
    return dataclasses.replace(PROBLEM, m=m, n=n, k=k, layout=Layout(major))
