"""Plans: a problem made ready on a device. Calling one launches, and does nothing else."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

from . import select, variant
from .arrays import ArrayView
from .backends import cublas, reference
from .cache import Cache
from .descriptors import AlignedMemory, Descriptors
from .driver import Driver, DriverError, driver
from .packed import PackedWeights
from .problem import Problem
from .select import Choice, DeviceInfo

CACHED_PLANS = 256
#: Where the four operands lie: x, w_gate, w_up (or the only weight twice), out.
Addresses = tuple[int, int, int, int]
_NOWHERE = (0, 0, 0, 0)


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
        self.check_process = cuda.check_process
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
        operands = (
            (problem.x, kernel.box("x")),
            weights[0],
            weights[-1],
            (problem.out, kernel.box("out")),
        )
        self._descriptors = [Descriptors(cuda, operand, box) for operand, box in operands]
        self._addresses = _NOWHERE
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
        self._launch = cuda.launcher(*self.packed)

    def __call__(
        self, x: ArrayView, weights: Sequence[ArrayView], out: ArrayView, stream: int
    ) -> None:
        """Launch on `stream`; the arrays match the problem the plan was made for."""
        addresses = x.pointer, weights[0].pointer, weights[-1].pointer, out.pointer
        with self._lock:
            self.launch(addresses, stream)

    def launch(self, addresses: Addresses, stream: int) -> None:
        """As a call, on operands at these addresses; for one thread at a time."""
        if addresses != self._addresses:
            self._point_at(addresses)
        self._launch(stream)

    @property
    def packed(self) -> tuple[Any, Any, int]:
        """Configuration, function and arguments of the last launch, as the driver takes them."""
        return self._config, self._function, self._arguments.address

    def _point_at(self, addresses: Addresses) -> None:
        before, self._addresses = self._addresses, _NOWHERE  # stays so if encoding fails
        for index, address in enumerate(addresses):
            if address != before[index]:
                self._arguments.descriptors[index] = self._descriptors[index].of(address)
        self._addresses = addresses


class _Arguments:
    """Kernel arguments in memory: integers, and the pointers to them and to the descriptors.

    Attributes
    ----------
    descriptors : array of four addresses
        To be pointed at descriptors before a launch.
    address : int
        Of the pointers.
    """

    def __init__(self, integers: tuple[int, ...]) -> None:
        pointers = 4 + len(integers)
        self._memory = AlignedMemory(8 * pointers + 4 * len(integers))
        self.address = self._memory.address
        values = self.address + 8 * pointers
        self.descriptors = (ctypes.c_uint64 * 4).from_address(self.address)
        (ctypes.c_uint64 * len(integers)).from_address(self.address + 8 * 4)[:] = [
            values + 4 * index for index in range(len(integers))
        ]
        (ctypes.c_int32 * len(integers)).from_address(values)[:] = list(integers)


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
        self.compute(x.array, operands, out.array)

    def compute(self, x: Any, weights: Sequence[Any], out: Any) -> None:
        """Compute with matrices that are arrays, unpacked."""
        self._compute(x, *weights, out)


Plan = Sm90Plan | PortablePlan

_plans: Cache[tuple[Problem, str], Plan] = Cache(CACHED_PLANS)
_devices: dict[int, DeviceInfo] = {}


def device_info(index: int) -> DeviceInfo:
    """What selection needs of a CUDA device, asked once."""
    info = _devices.get(index)
    if info is None:
        info = _devices[index] = driver().device_info(index)
    return info


def plan_for(problem: Problem, name: str = "auto") -> Plan:
    """The plan of a problem under ``variant=name``: from the cache, or made now.

    The problem's device must be current. Plans hold no arrays and no device memory, so that nothing
    a GPU still uses goes when one is forgotten; the cache keeps the most recently used
    `CACHED_PLANS`.
    """
    key = (problem, name)
    found = _plans.get(key)
    if found is None:
        found = _make(problem, name)
        _plans.put(key, found)
    elif isinstance(found, Sm90Plan):
        found.check_process()
    return found


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
