"""The resident kernel as the build's table has it, and problems for it."""

from __future__ import annotations

import dataclasses

from build_scripts.variants.resident import RESIDENT_VARIANTS, ResidentSource
from cuswiglu.kernels.resident import ResidentVariant
from cuswiglu.problem import Layout
from tests.helpers.problems import problem
from tests.helpers.table_kernels import made_from

PROBLEM = problem()


def kernel_of(source: ResidentSource) -> ResidentVariant:
    """The kernel that is built from a row of the table."""
    boxes = tuple((name, tuple(box)) for name, box in source.boxes().items())
    return made_from(source, ResidentVariant, 96, ("kind", "boxes"), boxes=boxes)


(SOURCE,) = RESIDENT_VARIANTS
KERNEL = kernel_of(SOURCE)


def asked_of(m, n, k, major="k"):
    """A problem of these sizes."""
    return dataclasses.replace(PROBLEM, m=m, n=n, k=k, layout=Layout(major))
