"""Plans: one product, of gate and up or of one weight, made ready on a device."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

from ..arrays import ArrayView
from ..backends import cublas, reference
from ..common.device import DeviceInfo
from ..kernels.decode_variant import DecodeVariant
from ..problem import Problem
from ..selection import select
from ..selection.select import Choice
from .arguments import KernelArguments, float_bits
from .driver import Driver, driver
from .launch_shape import LoadedKernel, of_decode, of_tiles
from .portable import PortablePlan
from .tensor_map import Descriptors

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
        resident = LoadedKernel(kernel, problem, cuda)
        shape = of_decode if isinstance(kernel, DecodeVariant) else of_tiles
        made = shape(kernel, problem, choice, resident)
        self.columns, self.rows, self.tokens = made.columns, made.rows, made.tokens
        self.clusters, self.grid = made.clusters, (made.cluster, made.clusters)
        self._function = resident.function
        self._config = cuda.config(
            self.grid, (made.cluster, 1), kernel.threads, made.shared_bytes, overlapping
        )
        # A kernel with one weight ignores the second descriptor.
        operands = [problem.x, problem.weights[0], problem.weights[-1], problem.out]
        descriptors = [
            Descriptors(cuda, operand, box, problem.dtype)
            for operand, box in zip(operands, made.boxes, strict=False)
        ]
        activation = problem.activation
        coefficients = map(float_bits, activation.coefficients.for_kernels())
        of_activation = activation.code, *coefficients
        self._ahead = len(made.integers)
        self._arguments = KernelArguments(
            descriptors, (*made.integers, int(weights_ahead), *of_activation)
        )
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
        self._arguments.integers[self._ahead] = 1

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
