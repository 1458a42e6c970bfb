"""Plans: one product, of gate and up or of one weight, made ready on a device."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

from ..arrays import ArrayView
from ..backends import cublas, reference
from ..common.device import DeviceInfo
from ..problem import Problem
from ..selection import select
from ..selection.select import Choice
from .arguments import OPERANDS, KernelArguments
from .driver import Driver, driver
from .loaded_kernel import LoadedKernel
from .portable import PortablePlan
from .tensor_map import TensorMaps

CACHED_CHOICES = 256


class Sm90Plan:
    """Plan of a kernel of ours: handle, grid, descriptors and packed arguments.

    Parameters
    ----------
    problem : Problem
    choice : Choice
        With a kernel.
    cuda : Driver
    weights_ahead : bool
        Whether weights may be loaded before the work ahead on the stream is done: only if no kernel
        just ahead writes them.
    overlapping : bool
        Whether the kernel may start before the work ahead on the stream is done.

    The device must be current. Calls may come from several threads.
    """

    def __init__(
        self,
        problem: Problem,
        choice: Choice,
        cuda: Driver,
        *,
        weights_ahead: bool = False,
        overlapping: bool = True,
    ) -> None:
        kernel = choice.kernel
        assert kernel is not None
        self.problem = problem
        self.choice = choice
        self._lock = threading.Lock()
        loaded = LoadedKernel(kernel, problem, cuda)
        made = kernel.launch_shape(
            problem, choice.raster_rows, choice.split, loaded.resident_clusters
        )
        self.columns, self.rows = made.columns, made.rows
        self.clusters, self.grid = made.clusters, (made.cluster, made.clusters)
        self._function = loaded.function
        self._config = cuda.config(
            self.grid, (made.cluster, 1), kernel.threads, made.shared_bytes, overlapping
        )
        # A kernel with one weight ignores the second descriptor.
        matrices = problem.x, problem.weights[0], problem.weights[-1], problem.out
        operands = dict(zip(OPERANDS, matrices, strict=False))
        maps = {name: TensorMaps(cuda, operands[name], box) for name, box in made.boxes.items()}
        activation = problem.activation
        values = {
            **made.integers,
            "weights_ahead": int(weights_ahead),
            "activation": activation.code,
            **activation.coefficients.for_kernels(),
        }
        self._arguments = KernelArguments(kernel.arguments, maps, values)
        #: launch(addresses, stream): as a call, on operands there; for one thread at a time.
        self.launch = cuda.launcher(*self.packed, self._arguments.point_at)

    def __call__(
        self,
        x: ArrayView,
        weights: Sequence[ArrayView],
        out: ArrayView,
        stream: int,
        biases: Sequence[ArrayView | None] = (),
    ) -> None:
        """Launch on `stream`; the arrays match the problem the plan was made for.

        `biases` are two, the second None of one weight, or none at all.
        """
        addresses = (
            *(x.pointer, weights[0].pointer, weights[-1].pointer, out.pointer),
            *(0 if bias is None else bias.pointer for bias in biases),
        )
        with self._lock:
            self.launch(addresses, stream)

    def load_weights_ahead(self) -> None:
        """Load weights ahead from the next launch on: nothing that may still run writes them."""
        self._arguments.set("weights_ahead", 1)

    @property
    def packed(self) -> tuple[Any, Any, int]:
        """Configuration, function and arguments of the last launch, as the driver takes them."""
        return self._config, self._function, self._arguments.address


Plan = Sm90Plan | PortablePlan


@functools.cache
def device_info(index: int) -> DeviceInfo:
    """Ask once what selection needs to know of a CUDA device."""
    return driver().device_info(index)


@functools.lru_cache(CACHED_CHOICES)
def choose(problem: Problem, name: str = "auto") -> Choice:
    """Choose for a problem under ``variant=name``: once, then the most recently used are kept.

    Layers of one shape share a choice.
    """
    device = None if problem.device.kind == "cpu" else device_info(problem.device.index)
    return select.select(problem, device, name)


def plan_for(problem: Problem, name: str = "auto", *, overlapping: bool = True) -> Plan:
    """Plan what `choose` says. The plan is new, and the caller's own.

    The problem's device must be current. Plans hold no arrays and no device memory, so that nothing
    a GPU still uses goes when one is forgotten. `overlapping` is as in `Sm90Plan`.
    """
    choice = choose(problem, name)
    if choice.kernel is not None:
        return kernel_plan(problem, choice, overlapping=overlapping)
    library: Any = reference if problem.device.kind == "cpu" else cublas
    return PortablePlan(problem, choice, library.swiglu if problem.gated else library.matmul)


def kernel_plan(
    problem: Problem,
    choice: Choice,
    *,
    weights_ahead: bool | None = None,
    overlapping: bool = True,
) -> Sm90Plan:
    """Plan one kernel; the problem's device must be current.

    `weights_ahead` and `overlapping` as in `Sm90Plan`. By default weights are loaded ahead by a
    down projection, which follows its own gate-up kernel, and that writes no weight; and by what
    does not overlap.
    """
    ahead = not (problem.gated and overlapping) if weights_ahead is None else weights_ahead
    return Sm90Plan(problem, choice, driver(), weights_ahead=ahead, overlapping=overlapping)
