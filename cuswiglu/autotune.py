"""Measuring which kernel is fastest for given shapes, on the current CUDA device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import arrays, problem
from .backends import cublas
from .common.device import Device
from .kernels.estimate import PROMISING, Rates
from .kernels.manifest import variants
from .kernels.split import Split
from .kernels.tile import LAUNCH_US, TileVariant
from .kernels.variant import Variant
from .problem import Layout
from .runtime import plan
from .selection import select, tuned
from .selection.tuned import Shape
from .testing import timing

WORKSPACE_BYTES = 64 << 20
# A contender's turn, in microseconds: long enough for the power limit to act, as it does in use.
TURN_US = 10_000.0


def mlp_shapes(k: int, n: int, tokens: Iterable[int], layout: str = Layout.K) -> Iterator[Shape]:
    """Yield the two products of a gated MLP of hidden size k and intermediate size n."""
    for m in tokens:
        yield Shape(m, n, k, layout, gated=True)
        yield Shape(m, k, n, layout, gated=False)


@dataclass(frozen=True)
class Tried:
    """A contender: a variant (or "cublas") with its raster, or with its split."""

    variant: str
    raster_rows: int = 0
    split: Split | None = None


#: cuBLAS, beside our own.
PORTABLE = Tried(select.PORTABLE)


def measure(shape: Shape, *, rounds: int = 5, everything: bool = False) -> dict[Tried, float]:
    """Measure the microseconds of what is promising, and of `PORTABLE`.

    Parameters
    ----------
    shape : Shape
    rounds : int
        Turns each contender takes.
    everything : bool
        Measure every kernel that can compute it, promising or not.
    """
    cupy = arrays.cupy_module()
    device = cupy.cuda.Device().id
    count = 2 if shape.gated else 1
    sets = timing.buffer_sets(2 * count * shape.n * shape.k)
    x, out = _random(shape.m, shape.k, 1.0), arrays.empty((shape.m, shape.n), _cuda(device))
    weights = [[_weight(shape) for _ in range(count)] for _ in range(sets)]
    x_view, out_view = arrays.view("x", x), arrays.view("out", out)
    views = [[arrays.view("weight", w) for w in pair] for pair in weights]
    described = problem.describe(x_view, views[0], out_view)

    def contender(kernel: Variant, tried: Tried) -> Callable[[int], None]:
        choice = select.Choice("sm90", kernel.name, kernel, tried.raster_rows, split=tried.split)
        # As in a GatedMLP, whose weights stay.
        made = plan.kernel_plan(described, choice, weights_ahead=True)
        return lambda i: made(x_view, views[i], out_view, cupy.cuda.get_current_stream().ptr)

    info = plan.device_info(device)
    able = [k for k in variants() if k.gated == shape.gated and k.obstacle(described) is None]
    ranked = select.estimates(described, info, select.prune(described, able))
    promising = [e for e in ranked if everything or e.us <= PROMISING * ranked[0].us]
    contenders = {}
    for kernel in (found.kernel for found in promising):
        for raster_rows, split in kernel.cuts(described, info.multiprocessors):
            tried = Tried(kernel.name, raster_rows, split)
            contenders[tried] = contender(kernel, tried)
    workspace = cupy.empty(WORKSPACE_BYTES, cupy.uint8)
    if shape.gated:
        contenders[PORTABLE] = lambda i: cublas.swiglu(x, weights[i][0], weights[i][1], out)
    else:
        contenders[PORTABLE] = lambda i: cublas.matmul(x, weights[i][0], out, workspace)
    named = {repr(tried): call for tried, call in contenders.items()}
    times = timing.microseconds(named, sets, rounds=rounds, target_us=TURN_US)
    return {tried: times[repr(tried)] for tried in contenders}


def best(shape: Shape, times: Mapping[Tried, float]) -> tuple[tuned.Key, tuned.Entry]:
    """Find the fastest of what was measured, as a tuned table has it."""
    tried, us = min(times.items(), key=lambda item: item[1])
    entry = tuned.Entry(tried.variant, max(1, tried.raster_rows), round(us, 2), tried.split)
    return tuned.Key.of(shape), entry


def fit_rates(
    measured: Mapping[Shape, Mapping[Tried, float]], multiprocessors: int
) -> dict[str, Rates]:
    """Fit the cost model's rates of each tile kernel: least squares of relative errors.

    Of the rasters measured for a shape, the fastest counts.
    """
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for shape, times in measured.items():
        for kernel in variants():
            found = [us for tried, us in times.items() if tried.variant == kernel.name]
            if not found or not isinstance(kernel, TileVariant):
                continue
            waves = kernel.rated_waves(shape.m, shape.n, shape.layout, multiprocessors)
            k_tiles = -(-shape.k // kernel.block_k)
            work = kernel.work(shape.m, shape.n, shape.k, shape.layout, multiprocessors)
            us = work.products(min(found) - LAUNCH_US) if min(found) > 2 * LAUNCH_US else 0.0
            if us > 0:  # others tell of what is not their products
                rows.setdefault(kernel.name, []).append((waves * k_tiles / us, waves / us, 1.0))
    rates = {}
    for name, equations in rows.items():
        table = np.array(equations)
        step, tile = np.linalg.lstsq(table[:, :2], table[:, 2], rcond=None)[0]
        if tile < 0:  # within the noise: all of it belongs to the steps
            step, tile = np.linalg.lstsq(table[:, :1], table[:, 2], rcond=None)[0][0], 0.0
        rates[name] = Rates(round(float(step), 6), round(float(tile), 4))
    return rates


def _cuda(index: int) -> Device:
    return Device("cuda", index)


def _random(rows: int, columns: int, scale: float) -> Any:
    """N(0, scale^2) in BF16, made in blocks that keep the FP32 copy small."""
    cupy = arrays.cupy_module()
    out = arrays.empty((rows, columns), _cuda(cupy.cuda.Device().id))
    generator = cupy.random.default_rng()
    for first in range(0, rows, 8192):
        block = out[first : first + 8192]
        block[...] = generator.standard_normal(block.shape, dtype=cupy.float32) * scale
    return out


def _weight(shape: Shape) -> Any:
    """(K, N) in the shape's layout, N(0, 1) / sqrt(K)."""
    scale = shape.k**-0.5
    if shape.layout == Layout.K:
        return _random(shape.n, shape.k, scale).T
    return _random(shape.k, shape.n, scale)
