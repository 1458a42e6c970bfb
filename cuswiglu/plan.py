"""Plans: a problem made ready on a device. Calling one launches, and does nothing else."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import decode, select, variant
from .arrays import ArrayView
from .backends import cublas, reference
from .cache import Cache
from .columns import Columns, uniform
from .descriptors import AlignedMemory, Descriptors
from .driver import Driver, DriverError, driver
from .packed import PackedWeights
from .problem import ELEMENT_BYTES, Problem
from .select import Choice, DeviceInfo
from .variant import DecodeVariant, TileVariant, Variant

CACHED_PLANS = 256
#: Where the operands lie: x, w_gate, w_up (or the only weight twice), out; of a biased problem then
#: b_gate, b_up (or the only weight's bias, and 0), each 0 where there is none.
Addresses = tuple[int, ...]
_OPERANDS, _BIASES = 4, 2
_NOWHERE: Addresses = (0, 0, 0, 0)


class Sm90Plan:
    """A kernel of ours: handle, grid, descriptors and packed arguments.

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
        self.check_process = cuda.check_process
        self._lock = threading.Lock()
        resident = Resident(kernel, problem, cuda)
        shape = _decode if isinstance(kernel, DecodeVariant) else _tiles
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
        coefficients = map(_bits, activation.coefficients.for_kernels())
        of_activation = activation.code, *coefficients
        self._ahead = len(made.integers)
        self._arguments = _Arguments(
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
        """From the next launch on: no kernel that may still run writes the weights."""
        self._arguments.integers[self._ahead] = 1

    @property
    def packed(self) -> tuple[Any, Any, int]:
        """Configuration, function and arguments of the last launch, as the driver takes them."""
        return self._config, self._function, self._arguments.address


@dataclass(frozen=True)
class _Shape:
    """What a launch is made of.

    `columns`, and so many `rows` of `tokens`, say how the result is cut; `boxes` are of the
    operands that have a TMA descriptor, x, the weights and out: without one, a kernel is given
    out's address.
    """

    columns: Columns
    rows: int
    tokens: int
    cluster: int  # CTAs
    clusters: int
    shared_bytes: int
    boxes: tuple[tuple[int, int, int], ...]
    integers: tuple[int, ...]


class Resident:
    """A kernel loaded on the problem's device, and how many of its clusters run there at once."""

    def __init__(self, kernel: Variant, problem: Problem, cuda: Driver) -> None:
        self._kernel, self._cuda = kernel, cuda
        self._device = problem.device.index
        self._entry = kernel.entry(problem.major, problem.dtype, extras=problem.extras)
        self.function = cuda.kernel(
            variant.cubin(kernel), kernel.sha256, self._entry, self._device, kernel.most_shared
        )

    def clusters(self, cluster: int, shared_bytes: int) -> int:
        """Clusters of so many CTAs, each with so much shared memory.

        Raises
        ------
        DriverError
            If there is no room for one.
        """
        shape = (cluster, 1)
        probe = self._cuda.config(shape, shape, self._kernel.threads, shared_bytes)
        found = self._cuda.resident_clusters(self.function, probe, self._entry)
        if found < 1:
            raise DriverError(
                f"no cluster of {self._kernel.name} fits on CUDA device {self._device} (a MIG "
                "slice?): use variant='cublas', or an instance with cluster 1x1"
            )
        return found


def _tiles(kernel: Variant, problem: Problem, choice: Choice, resident: Resident) -> _Shape:
    assert isinstance(kernel, TileVariant)
    at_once = resident.clusters(kernel.cluster_m, kernel.shared_bytes)
    columns = kernel.columns(problem.m, problem.n, problem.major, at_once)
    rows = kernel.rows(problem.m)
    weight = kernel.weight_box(problem.major, columns)
    return _Shape(
        columns=columns,
        rows=rows,
        tokens=kernel.block_m * kernel.cluster_m,
        cluster=kernel.cluster_m,
        clusters=min(rows * columns.count, at_once),
        shared_bytes=kernel.shared_bytes,
        boxes=(kernel.box("x"), weight, weight, kernel.box("out")),
        integers=(
            problem.m,
            problem.n,
            problem.k,
            choice.raster_rows or kernel.raster_rows,
            columns.wide,
            columns.wide_width,
            columns.narrow_width,
        ),
    )


def _decode(kernel: Variant, problem: Problem, choice: Choice, resident: Resident) -> _Shape:
    assert isinstance(kernel, DecodeVariant)
    split = choice.split
    laid = None if split is None else decode.layout(kernel, problem, split)
    if split is None or laid is None:
        raise ValueError(f"{kernel.name} cannot be launched with {split} for this problem")
    # One CTA an SM takes tiles in turns, unless a few more, beside others, take all at once.
    alone = resident.clusters(split.ranks, kernel.most_shared)
    beside = resident.clusters(split.ranks, laid.shared_bytes)
    all_at_once = laid.items <= min(beside, alone + alone // 8)
    span = kernel.block_k * ELEMENT_BYTES
    weight = (kernel.block_k, laid.box_rows, span)
    if problem.major == "n":
        weight = (laid.box_rows, kernel.block_k, span)
    return _Shape(
        columns=uniform(problem.n, split.rows),
        rows=-(-problem.m // kernel.tokens),
        tokens=kernel.tokens,
        cluster=split.ranks,
        clusters=laid.items if all_at_once else min(laid.items, alone),
        shared_bytes=laid.shared_bytes,
        boxes=((kernel.block_k, laid.x_rows, span), weight, weight),
        integers=(
            problem.m,
            problem.n,
            problem.k,
            problem.out.stride,
            split.rows,
            laid.stages,
        ),
    )


class _Arguments:
    """Kernel arguments in memory: integers of 8 bytes, and pointers to them and to the operands.

    A kernel that takes an integer, or an FP32 number, of 4 bytes reads the lower half. Biases, and
    an operand without a descriptor, as out of some kernels, are given by their addresses.

    Attributes
    ----------
    integers : array
    address : int
        Of the pointers.
    """

    def __init__(self, descriptors: list[Descriptors], integers: tuple[int, ...]) -> None:
        given = 1 + _BIASES + len(integers)  # by value: out's address, the biases', the integers
        pointers = _OPERANDS - 1 + given
        self._memory = AlignedMemory(8 * (pointers + given))
        self.address = self._memory.address
        values = self.address + 8 * pointers
        self._descriptors = descriptors
        self._addresses: Addresses = _NOWHERE
        self._operands = (ctypes.c_uint64 * pointers).from_address(self.address)
        self._operands[_OPERANDS - 1 :] = [values + 8 * index for index in range(given)]
        self._given = (ctypes.c_uint64 * (1 + _BIASES)).from_address(values)
        self.integers = (ctypes.c_int64 * len(integers)).from_address(values + 8 * (1 + _BIASES))
        self.integers[:] = list(integers)

    def point_at(self, addresses: Addresses) -> None:
        """Where x, the weights, out and the biases lie at the next launch."""
        before, self._addresses = self._addresses, _NOWHERE  # stays so if encoding fails
        for index, descriptors in enumerate(self._descriptors):
            if addresses[index] != before[index]:
                self._operands[index] = descriptors.of(addresses[index])
        if len(self._descriptors) < _OPERANDS:
            self._given[0] = addresses[_OPERANDS - 1]
        if len(addresses) > _OPERANDS:
            self._given[1:] = list(addresses[_OPERANDS:])
        self._addresses = addresses


def _bits(value: float) -> int:
    """Of an FP32 number."""
    return int.from_bytes(struct.pack("<f", value), "little")


class PortablePlan:
    """The portable path, and the reference on the CPU: array libraries do the launching."""

    def __init__(self, problem: Problem, choice: Choice, compute: Callable[..., None]) -> None:
        self.problem = problem
        self.choice = choice
        self._compute = compute

    def __call__(
        self,
        x: ArrayView,
        weights: Sequence[ArrayView],
        out: ArrayView,
        stream: int,
        biases: Sequence[ArrayView | None] = (),
    ) -> None:
        """Compute; on a device, on CuPy's current stream, which the caller has set to `stream`."""
        operands = [weight.array for weight in weights]
        if weights[0].packing:
            operands = list(PackedWeights(operands[0].T, weights[0].packing).unpack())
        self.compute(x.array, operands, out.array, [bias and bias.array for bias in biases])

    def compute(self, x: Any, weights: Sequence[Any], out: Any, biases: Sequence[Any] = ()) -> None:
        """Compute with matrices that are arrays, unpacked, and biases that are arrays or None."""
        options: dict[str, Any] = {"biases": tuple(biases)} if biases else {}
        if self.problem.gated:
            options["activation"] = self.problem.activation
        self._compute(x, *weights, out, **options)


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


def kernel_plan(
    problem: Problem,
    choice: Choice,
    *,
    weights_ahead: bool | None = None,
    overlapping: bool = True,
) -> Sm90Plan:
    """The plan of one kernel, not cached; the problem's device must be current.

    `weights_ahead` and `overlapping` as in `Sm90Plan`. By default weights are loaded ahead by a
    down projection, which follows its own gate-up kernel, and that writes no weight; and by what
    does not overlap.
    """
    ahead = not (problem.gated and overlapping) if weights_ahead is None else weights_ahead
    return Sm90Plan(problem, choice, driver(), weights_ahead=ahead, overlapping=overlapping)


def _make(problem: Problem, name: str) -> Plan:
    on_cpu = problem.device.kind == "cpu"
    choice = select.select(problem, None if on_cpu else device_info(problem.device.index), name)
    if choice.backend == "sm90":
        return kernel_plan(problem, choice)
    library: Any = reference if choice.backend == select.REFERENCE else cublas
    return PortablePlan(problem, choice, library.swiglu if problem.gated else library.matmul)
