"""Plans: a problem made ready on a device. Calling one launches, and does nothing else."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from . import select, variant
from .arrays import ArrayView
from .backends import cublas, reference
from .driver import Driver, DriverError, driver
from .packed import PackedWeights
from .problem import Problem
from .select import Choice, DeviceInfo

ALIGNMENT = 128  # of a TMA descriptor in kernel arguments
DESCRIPTOR_BYTES = 128
CACHED_PLANS = 256


class Sm90Plan:
    """A kernel of ours: handle, grid, descriptors and packed arguments.

    Parameters
    ----------
    problem : Problem
    choice : Choice
        With a kernel.
    cuda : Driver
    weights_ahead : bool
        Whether the weights may be loaded before the work ahead on the stream is done: only if no
        kernel just ahead writes them.

    The device must be current. Calls may come from several threads.
    """

    def __init__(
        self, problem: Problem, choice: Choice, cuda: Driver, *, weights_ahead: bool = False
    ) -> None:
        kernel = choice.kernel
        assert kernel is not None
        self.problem = problem
        self.choice = choice
        self._cuda = cuda
        self._lock = threading.Lock()
        entry = kernel.entry(problem.major)
        self._function = cuda.kernel(
            variant.cubin(kernel), kernel.sha256, entry, problem.device.index, kernel.shared_bytes
        )
        cluster = (kernel.cluster_m, 1)
        probe = cuda.config(cluster, cluster, kernel.threads, kernel.shared_bytes)
        resident = cuda.resident_clusters(self._function, probe, entry)
        if resident < 1:
            raise DriverError(
                f"no cluster of {kernel.name} fits on CUDA device {problem.device.index} (a MIG "
                "slice?): use variant='cublas', or an instance with cluster 1x1"
            )
        self.columns = kernel.columns(problem.m, problem.n, problem.major, resident)
        self.clusters = min(kernel.rows(problem.m) * self.columns.count, resident)
        self.grid = (kernel.cluster_m, self.clusters)
        self._config = cuda.config(
            self.grid, cluster, kernel.threads, kernel.shared_bytes, overlapping=True
        )
        weights = [(weight, kernel.box(f"weight_{problem.major}")) for weight in problem.weights]
        # A kernel with one weight ignores the second descriptor.
        self._operands = (
            (problem.x, kernel.box("x")),
            weights[0],
            weights[-1],
            (problem.out, kernel.box("out")),
        )
        self._addresses = [0] * len(self._operands)
        self._arguments = _Arguments(
            (
                problem.m,
                problem.n,
                problem.k,
                choice.raster_rows or kernel.raster_rows,
                self.columns.wide,
                self.columns.wide_width,
                self.columns.narrow_width,
                int(weights_ahead),
            )
        )

    def __call__(
        self, x: ArrayView, weights: Sequence[ArrayView], out: ArrayView, stream: int
    ) -> None:
        """Launch on `stream`; the arrays match the problem the plan was made for."""
        with self._lock:
            for index, array in enumerate((x, weights[0], weights[-1], out)):
                if self._addresses[index] != array.pointer:
                    operand, box = self._operands[index]
                    self._addresses[index] = 0  # stays so if encoding fails
                    self._cuda.encode_tensor_map(
                        self._arguments.descriptor(index),
                        array.pointer,
                        (operand.columns, operand.rows),
                        operand.stride * 2,
                        box,
                    )
                    self._addresses[index] = array.pointer
            self._cuda.launch(self._config, self._function, stream, self._arguments.address)


class _Arguments:
    """Kernel arguments in memory: four descriptors, integers, and the pointers to them all."""

    def __init__(self, integers: tuple[int, ...]) -> None:
        count = 4 + len(integers)
        size = 4 * DESCRIPTOR_BYTES + 4 * len(integers) + 8 * count + 8
        self._memory = ctypes.create_string_buffer(size + ALIGNMENT)
        base = -(-ctypes.addressof(self._memory) // ALIGNMENT) * ALIGNMENT
        self._base = base
        values = base + 4 * DESCRIPTOR_BYTES
        (ctypes.c_int32 * len(integers)).from_address(values)[:] = list(integers)
        self.address = -(-(values + 4 * len(integers)) // 8) * 8
        pointers = (ctypes.c_uint64 * count).from_address(self.address)
        pointers[:] = [
            *(self.descriptor(index) for index in range(4)),
            *(values + 4 * index for index in range(len(integers))),
        ]

    def descriptor(self, index: int) -> int:
        return self._base + index * DESCRIPTOR_BYTES


class PortablePlan:
    """The portable path, and the reference on the CPU: array libraries do the launching."""

    def __init__(self, problem: Problem, choice: Choice, compute: Callable[..., None]) -> None:
        self.problem = problem
        self.choice = choice
        self._compute = compute

    def __call__(
        self, x: ArrayView, weights: Sequence[ArrayView], out: ArrayView, stream: int
    ) -> None:
        """Compute; on a device, on CuPy's current stream, which the caller has set to `stream`."""
        operands = [weight.array for weight in weights]
        if weights[0].packing:
            operands = list(PackedWeights(operands[0].T, weights[0].packing).unpack())
        self._compute(x.array, *operands, out.array)


Plan = Sm90Plan | PortablePlan

_plans: OrderedDict[tuple[Problem, str], Plan] = OrderedDict()
_plans_lock = threading.Lock()
_devices: dict[int, DeviceInfo] = {}


def device_info(index: int) -> DeviceInfo:
    """What selection needs of a CUDA device, asked once."""
    info = _devices.get(index)
    if info is None:
        info = _devices[index] = driver().device_info(index)
    return info


def plan_for(problem: Problem, name: str = "auto") -> Plan:
    """The plan of a problem under ``variant=name``: from the cache, or made now.

    The problem's device must be current. Plans hold no arrays; the cache keeps the most recently
    used `CACHED_PLANS`.
    """
    key = (problem, name)
    with _plans_lock:
        found = _plans.get(key)
        if found is not None:
            _plans.move_to_end(key)
    if found is not None:
        if isinstance(found, Sm90Plan):
            found._cuda.check_process()
        return found
    made = _make(problem, name)
    with _plans_lock:
        _plans[key] = made
        while len(_plans) > CACHED_PLANS:
            _plans.popitem(last=False)
    return made


def kernel_plan(problem: Problem, choice: Choice) -> Sm90Plan:
    """The plan of one kernel, not cached; the problem's device must be current."""
    # The down projection follows its own gate-up kernel, which writes no weight.
    return Sm90Plan(problem, choice, driver(), weights_ahead=not problem.gated)


def _make(problem: Problem, name: str) -> Plan:
    on_cpu = problem.device.kind == "cpu"
    choice = select.select(problem, None if on_cpu else device_info(problem.device.index), name)
    if choice.backend == "sm90":
        return kernel_plan(problem, choice)
    library: Any = reference if choice.backend == select.REFERENCE else cublas
    return PortablePlan(problem, choice, library.swiglu if problem.gated else library.matmul)
