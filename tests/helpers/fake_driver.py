"""A CUDA driver that launches nothing: it checks and records what it is told.

`FakeDriver` stands in for the module `cuda.bindings.driver`, whose structures and enumerations it
uses.
"""

from __future__ import annotations

import ctypes
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from build_scripts.variants import ALL_VARIANTS
from build_scripts.variants import arguments as declared
from cuswiglu.problem import activations

cuda = pytest.importorskip("cuda.bindings.driver", reason="the driver's structures")
Result = cuda.CUresult


def coefficients(activation="silu"):
    """What a kernel is told of an activation, by the names it has for them."""
    values = activations.find(activation).coefficients.for_kernels()
    return {name: float(np.float32(value)) for name, value in values.items()}


COEFFICIENTS = coefficients()  # of SiLU, and of what has no activation
#: Kind of an argument -> how it is read.
_KINDS = {
    "pointer": ctypes.c_int64,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
}
_OPERANDS = ("x", "w_first", "w_second", "out")
_BIASES = ("b_first", "b_second")


def arguments_of(entry):
    """What an entry point takes, in order: (name, kind), as the build declares it."""
    return DECLARED.get(entry, declared.DECODE if entry.startswith("decode") else declared.TILE)


#: Arguments of the entry points that are built.
DECLARED = {one.name: source.arguments for source in ALL_VARIANTS for one in source.entries}


#: Is asked once by each plan that is made.
PLANS = "cuOccupancyMaxActiveClusters"
#: Shared memory of an SM, and what a CTA of it takes beyond its own.
SM_BYTES, CTA_BYTES = 228 << 10, 1 << 10


@dataclass(frozen=True)
class TensorMap:
    """The arguments of one cuTensorMapEncodeTiled."""

    address: int
    extents: tuple[int, ...]
    row_bytes: int
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    data_type: int
    interleave: int
    swizzle: int
    l2_promotion: int
    fill: int


@dataclass(frozen=True)
class Launch:
    """One cuLaunchKernelEx, with its packed arguments followed through their pointers."""

    entry: str
    device: int
    stream: int
    grid: tuple[int, int, int]
    cluster: tuple[int, int, int]
    threads: int
    shared_bytes: int
    overlapping: bool  # programmatic dependent launch
    maps: tuple[TensorMap, ...]
    addresses: tuple[int, int, int, int]  # of x, gate, up and out, whether in a descriptor or not
    biases: tuple[int, int]  # addresses, 0 where there is none
    named: dict[str, float]  # the other arguments, by the names they have in the kernels

    @property
    def sizes(self):
        """(M, N, K)."""
        return self.named["m"], self.named["n"], self.named["k"]


@dataclass
class Function:
    entry: str
    device: int
    shared_bytes: int = 48 << 10


@dataclass
class FakeDriver:
    """What `cuswiglu.driver` calls. `failing` maps a function's name to the status it returns.

    `contexts.current` is a thread's context: the primary one of the current device, unless it is
    set to another, or to 0 for a thread that has none.
    """

    current_device: object = lambda: 0
    version: int = 12090
    name: bytes = b"NVIDIA H200"
    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    failing: dict[str, object] = field(default_factory=dict)
    calls: list[tuple[str, object]] = field(default_factory=list)
    maps: list[TensorMap] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    capture_mode: object = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

    def __post_init__(self):
        self.contexts = threading.local()
        self._encoder = _ENCODER(self._encode)  # kept: C code calls it
        self._lock = threading.Lock()

    def __getattr__(self, name):
        if name.startswith("CU"):
            return getattr(cuda, name)
        raise AttributeError(f"the fake driver has no {name}")

    def count(self, function):
        return sum(name == function for name, _ in self.calls)

    def told(self, function):
        return [argument for name, argument in self.calls if name == function]

    def _return(self, function, argument, *values):
        self.calls.append((function, argument))
        status = self.failing.get(function, Result.CUDA_SUCCESS)
        return (status, *values)

    def cuInit(self, flags):  # noqa: N802
        return self._return("cuInit", flags)

    def cuDriverGetVersion(self):  # noqa: N802
        return self._return("cuDriverGetVersion", None, self.version)

    def cuGetProcAddress(self, symbol, version, flags):  # noqa: N802
        address = ctypes.cast(self._encoder, ctypes.c_void_p).value
        found = cuda.CUdriverProcAddressQueryResult.CU_GET_PROC_ADDRESS_SUCCESS
        return self._return("cuGetProcAddress", (symbol, version, flags), address, found)

    def cuDeviceGetCount(self):  # noqa: N802
        return self._return("cuDeviceGetCount", None, 1)

    def cuDeviceGet(self, index):  # noqa: N802
        return self._return("cuDeviceGet", index, index)

    def cuDeviceGetAttribute(self, attribute, device):  # noqa: N802
        kind = cuda.CUdevice_attribute
        values = {
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: self.capability[0],
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: self.capability[1],
            kind.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: self.multiprocessors,
        }
        return self._return("cuDeviceGetAttribute", attribute, values[attribute])

    def cuDeviceGetName(self, length, device):  # noqa: N802
        return self._return("cuDeviceGetName", device, self.name.ljust(length, b"\0"))

    def cuDevicePrimaryCtxRetain(self, device):  # noqa: N802
        return self._return("cuDevicePrimaryCtxRetain", device, _primary(device))

    def _context(self):
        return self.contexts.__dict__.get("current", _primary(max(0, self.current_device())))

    def cuCtxGetCurrent(self):  # noqa: N802
        return self._return("cuCtxGetCurrent", None, self._context())

    def cuCtxSetCurrent(self, context):  # noqa: N802
        self.contexts.current = context
        return self._return("cuCtxSetCurrent", context)

    def cuThreadExchangeStreamCaptureMode(self, mode):  # noqa: N802
        before, self.capture_mode = self.capture_mode, mode
        return self._return("cuThreadExchangeStreamCaptureMode", mode, before)

    def cuLibraryLoadData(self, code, *options):  # noqa: N802
        time.sleep(0.002)  # as other threads run while a driver loads
        return self._return("cuLibraryLoadData", code, SimpleNamespace(code=code))

    def cuLibraryGetKernel(self, library, name):  # noqa: N802
        if name not in library.code:
            return (Result.CUDA_ERROR_NOT_FOUND, None)
        return self._return("cuLibraryGetKernel", name.decode(), name.decode())

    def cuKernelGetFunction(self, kernel):  # noqa: N802
        if self._context() == 0:
            return (Result.CUDA_ERROR_INVALID_CONTEXT, None)
        function = Function(kernel, self.current_device())
        return self._return("cuKernelGetFunction", (kernel, function.device), function)

    def cuFuncSetAttribute(self, function, attribute, value):  # noqa: N802
        assert attribute == (
            cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        )
        function.shared_bytes = value
        return self._return("cuFuncSetAttribute", (function.entry, value))

    def cuOccupancyMaxActiveClusters(self, function, config):  # noqa: N802
        size = config.attrs[0].value.clusterDim.x * config.attrs[0].value.clusterDim.y
        ctas = self.multiprocessors * (SM_BYTES // (config.sharedMemBytes + CTA_BYTES))
        return self._return("cuOccupancyMaxActiveClusters", function.entry, ctas // size)

    def cuLaunchKernelEx(self, config, function, arguments, extra):  # noqa: N802
        if self._context() == 0:
            return (Result.CUDA_ERROR_INVALID_CONTEXT,)
        launch = self._launch(config, function, arguments)
        if self._context() != _primary(max(0, function.device)):
            return (Result.CUDA_ERROR_INVALID_HANDLE,)
        if function.device != launch.device:
            return (Result.CUDA_ERROR_INVALID_HANDLE,)
        if launch.shared_bytes > function.shared_bytes:
            return (Result.CUDA_ERROR_INVALID_VALUE,)
        if any(g % c for g, c in zip(launch.grid, launch.cluster, strict=True)):
            return (Result.CUDA_ERROR_INVALID_CLUSTER_SIZE,)
        result = self._return("cuLaunchKernelEx", function.entry)
        if result == (Result.CUDA_SUCCESS,):
            self.launches.append(launch)
        return result

    def _launch(self, config, function, arguments):
        """The operands, biases, integers and floats, as the kernels declare them."""
        takes = arguments_of(function.entry)
        pointers = (ctypes.c_uint64 * len(takes)).from_address(arguments)
        maps, values = [], {}
        for (name, kind), pointer in zip(takes, pointers, strict=True):
            if kind == "tensor_map":
                assert pointer % 128 == 0
                maps.append(self.maps[ctypes.c_int32.from_address(pointer).value])
                values[name] = maps[-1].address
            else:
                assert pointer % ctypes.sizeof(_KINDS[kind]) == 0
                values[name] = _KINDS[kind].from_address(pointer).value
        kind = cuda.CUlaunchAttributeID
        attributes = {attribute.id: attribute.value for attribute in config.attrs}
        assert config.numAttrs == len(config.attrs) == len(attributes)
        cluster = attributes.pop(kind.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim
        early = attributes.pop(kind.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, None)
        assert attributes == {}
        assert (config.blockDimY, config.blockDimZ) == (1, 1)
        return Launch(
            entry=function.entry,
            device=self.current_device(),
            stream=int(config.hStream),
            grid=(config.gridDimX, config.gridDimY, config.gridDimZ),
            cluster=(cluster.x, cluster.y, cluster.z),
            threads=config.blockDimX,
            shared_bytes=config.sharedMemBytes,
            overlapping=early is not None and early.programmaticStreamSerializationAllowed == 1,
            maps=tuple(maps),
            addresses=tuple(values.pop(name) for name in _OPERANDS),
            biases=tuple(values.pop(name) for name in _BIASES),
            named=values,
        )

    def _encode(self, destination, data_type, rank, address, extents, strides, box, steps, *rest):
        """Refuses what the driver refuses; writes the number of the record as descriptor."""
        swizzle = rest[1]
        record = TensorMap(
            address or 0, tuple(extents[:2]), strides[0], tuple(box[:2]), tuple(steps[:2]),
            data_type, rest[0], swizzle, *rest[2:],
        )  # fmt: skip
        fine = (
            rank == 2
            and destination % 64 == 0
            and record.address
            and record.address % 16 == 0
            and record.row_bytes % 16 == 0
            and record.row_bytes >= 2 * record.extents[0]
            and all(1 <= width <= 256 for width in record.box)
            and 2 * record.box[0] % 16 == 0
            and (swizzle == 0 or 2 * record.box[0] <= {1: 32, 2: 64, 3: 128}[swizzle])
        )
        self.calls.append(("cuTensorMapEncodeTiled", record))
        time.sleep(0)  # lets other threads in, where a lock is missing
        if self._context() == 0:
            return int(Result.CUDA_ERROR_INVALID_CONTEXT)
        if "cuTensorMapEncodeTiled" in self.failing or not fine:
            return int(Result.CUDA_ERROR_INVALID_VALUE)
        with self._lock:
            number = len(self.maps)
            self.maps.append(record)
        ctypes.memset(destination, 0xFF, 128)
        ctypes.c_uint32.from_address(destination).value = number
        return 0


def _primary(device):
    return 0xC0DE00 + device


def run_in_threads(work, count=8):
    """work(number) in threads that start together; their results, or the first error."""
    barrier = threading.Barrier(count)

    def run(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


_WORDS = ctypes.POINTER(ctypes.c_uint32)
_LONG_WORDS = ctypes.POINTER(ctypes.c_uint64)
_ENCODER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p,
    _LONG_WORDS, _LONG_WORDS, _WORDS, _WORDS, *[ctypes.c_int] * 4,
)  # fmt: skip
