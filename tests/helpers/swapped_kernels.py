"""Kernels of exchanged operands as the build's table has them, and problems for them."""

from __future__ import annotations

import dataclasses

from build_scripts.variants.swapped import SWAPPED_VARIANTS, SwappedSource
from cuswiglu.kernels.swapped import SwappedVariant
from cuswiglu.problem import Layout
from tests.helpers.problems import plain_problem, problem
from tests.helpers.table_kernels import made_from

# What only the manifest and the build need.
NOT_FIELDS = ("kind", "schedule")
PROBLEMS = {True: problem(), False: plain_problem()}  # whether there are gate and up


def kernel_of(source: SwappedSource) -> SwappedVariant:
    """The kernel that is built from a row of the table."""
    return made_from(source, SwappedVariant, 168, NOT_FIELDS)


KERNELS = [kernel_of(source) for source in SWAPPED_VARIANTS]


def of_cluster(cluster_n: int, *, gated: bool = True) -> SwappedVariant:
    """The kernel of gate and up, or of one weight, in clusters of so many CTAs."""
    return next(one for one in KERNELS if (one.gated, one.cluster_n) == (gated, cluster_n))


def asked_of(kernel, m, n, k, major="k"):
    """A problem of these sizes for a kernel."""
    return dataclasses.replace(PROBLEMS[kernel.gated], m=m, n=n, k=k, layout=Layout(major))


def qwen_3b(kernel, m):
    """Gate and up, or the down projection, of Qwen-2.5 3B."""
    return asked_of(kernel, m, *((11008, 2048) if kernel.gated else (2048, 11008)))
