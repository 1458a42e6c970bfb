"""Launch: cuda-python's driver API, and nothing that knows the kernels."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..common.device import DeviceInfo
from ..common.dtypes import ELEMENTS

MINIMUM_DRIVER = 12000  # CUDA 12.0: the first that loads our cubins (driver 525)
NO_DRIVER = "no NVIDIA driver was found here: the kernels need a Hopper GPU and driver 525 or newer"


class _Process:
    """Counts the forks that lead to this process."""

    forks = 0

    @classmethod
    def forked(cls) -> None:
        cls.forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.forked)  # quicker than os.getpid() at each call


class DriverError(RuntimeError):
    """A CUDA driver call failed, or the driver cannot be used."""


def installed() -> bool:
    """Whether there is a driver library on this machine at all."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@functools.cache
def bindings() -> Any:
    """cuda-python's driver module, imported on first use.

    Raises
    ------
    ImportError
        If cuda-python is not installed.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ImportError(
            f"the kernels need cuda-python, which cannot be imported here ({error}): "
            "pip install 'cuswiglu[cuda12]' or 'cuswiglu[cuda13]'"
        ) from error
    return driver


def check(result: Sequence[Any], doing: str) -> Any:
    """Unwrap what cuda-python returns: (status, value...)."""
    status, *values = result
    if int(status) != 0:
        raise DriverError(f"the CUDA driver failed at {doing}: {getattr(status, 'name', status)}")
    return values[0] if values else None


# The tensor-map call writes into an object that must be 64-byte aligned, which cuda-python's
# objects are not always: so it is reached by address, and encodes into memory of our own.
_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,  # CUtensorMap*
    ctypes.c_int,  # element type
    ctypes.c_uint32,  # rank
    ctypes.c_void_p,  # base address
    ctypes.POINTER(ctypes.c_uint64),  # extents
    ctypes.POINTER(ctypes.c_uint64),  # strides in bytes, all but the first
    ctypes.POINTER(ctypes.c_uint32),  # box
    ctypes.POINTER(ctypes.c_uint32),  # element strides
    ctypes.c_int,  # interleave
    ctypes.c_int,  # swizzle
    ctypes.c_int,  # L2 promotion
    ctypes.c_int,  # out-of-bounds fill
)
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}  # span in bytes -> CU_TENSOR_MAP_SWIZZLE_*
_L2_PROMOTION_256B = 3


class Driver:
    """The CUDA driver, for this process. One object serves all devices and threads."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._forks = _Process.forks
        self._lock = threading.Lock()
        self._libraries: dict[str, Any] = {}
        self._kernels: dict[tuple[str, int], Any] = {}
        self._primary: dict[int, Any] = {}
        try:
            status = cuda.cuInit(0)
        except RuntimeError as error:  # cuda-python finds no libcuda
            raise DriverError(NO_DRIVER) from error
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        if int(status[0]) == _NO_DEVICE and hidden is not None:
            raise DriverError(
                f"the CUDA driver sees no GPU: CUDA_VISIBLE_DEVICES is {hidden!r}, which hides "
                "them all; unset it, or name a GPU that is here"
            )
        check(status, "cuInit (is there an NVIDIA GPU?)")
        self._version = int(check(cuda.cuDriverGetVersion(), "cuDriverGetVersion"))
        if self._version < MINIMUM_DRIVER:
            raise DriverError(
                f"the CUDA driver supports CUDA {self.version()}, the kernels need 12.0 or newer "
                "(driver 525): update the NVIDIA driver"
            )
        address, _ = _pair(
            cuda.cuGetProcAddress(b"cuTensorMapEncodeTiled", 12000, 0), "cuGetProcAddress"
        )
        self._encode = _ENCODE(int(address))

    def check_process(self) -> None:
        """Refuse to run in a forked child: a CUDA context does not survive fork().

        Raises
        ------
        DriverError
        """
        if _Process.forks != self._forks:
            raise DriverError(
                "CUDA was initialised before this process was forked, and cannot be used in the "
                "child: start workers with multiprocessing.get_context('spawn')"
            )

    def _enter(self, index: int) -> None:
        """Have a device's primary context current, also in a thread that has not used CUDA yet."""
        primary = self._primary.get(index)
        if primary is None:
            device = check(self._cuda.cuDeviceGet(index), "cuDeviceGet")
            retained = self._cuda.cuDevicePrimaryCtxRetain(device)
            primary = self._primary[index] = check(retained, "cuDevicePrimaryCtxRetain")
        self._entered(primary)

    def _entered(self, context: Any) -> bool:
        """Whether this thread had no CUDA context: now it has this one. Another is an error."""
        current = int(check(self._cuda.cuCtxGetCurrent(), "cuCtxGetCurrent"))
        if current == int(context):
            return False
        if current != 0:
            raise DriverError(
                "the current CUDA context is not the device's primary one, which CuPy, JAX and "
                "the kernels use: pop it (cuCtxPopCurrent) before the call"
            )
        check(self._cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        return True

    def version(self) -> str:
        """Return the newest CUDA version the driver supports, as "12.9"."""
        return f"{self._version // 1000}.{self._version % 1000 // 10}"

    def device_count(self) -> int:
        """CUDA devices this process may use."""
        return int(check(self._cuda.cuDeviceGetCount(), "cuDeviceGetCount"))

    def device_info(self, index: int) -> DeviceInfo:
        """Name, compute capability and number of multiprocessors of a device."""
        self.check_process()
        cuda = self._cuda
        device = check(cuda.cuDeviceGet(index), "cuDeviceGet")
        attribute = cuda.CUdevice_attribute
        ask = [
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        ]
        major, minor, count = (
            check(cuda.cuDeviceGetAttribute(a, device), "cuDeviceGetAttribute") for a in ask
        )
        name = check(cuda.cuDeviceGetName(64, device), "cuDeviceGetName")
        return DeviceInfo(name.split(b"\0")[0].decode(), (major, minor), count, self.version())

    def kernel(self, code: bytes, key: str, entry: str, index: int, shared_bytes: int) -> Any:
        """Load an entry point of a cubin, ready on the current device `index`; once.

        Parameters
        ----------
        code : bytes
            The cubin.
        key : str
            Its hash: the same code is loaded once per process.
        entry : str
        index : int
            The current device.
        shared_bytes : int
            Dynamic shared memory it is launched with.
        """
        self.check_process()
        cuda = self._cuda
        with self._lock:
            self._enter(index)
            found = self._kernels.get((entry, index))
            if found is not None:
                return found
            library = self._libraries.get(key)
            if library is None:
                library = check(
                    cuda.cuLibraryLoadData(code, [], [], 0, [], [], 0), f"loading {entry}"
                )
                self._libraries[key] = library
            handle = check(cuda.cuLibraryGetKernel(library, entry.encode()), f"finding {entry}")
            # As a function of the current context: nothing is left to load when it is launched.
            function = check(cuda.cuKernelGetFunction(handle), f"loading {entry}")
            check(
                cuda.cuFuncSetAttribute(
                    function,
                    cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    shared_bytes,
                ),
                f"asking for {shared_bytes} bytes of shared memory for {entry}",
            )
            self._kernels[entry, index] = function
            return function

    @contextlib.contextmanager
    def relaxed_capture(self) -> Iterator[None]:
        """Lets this thread load kernels while a stream is being captured."""
        exchange = self._cuda.cuThreadExchangeStreamCaptureMode
        relaxed = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = check(exchange(relaxed), "cuThreadExchangeStreamCaptureMode")
        try:
            yield
        finally:
            check(exchange(before), "cuThreadExchangeStreamCaptureMode")

    def config(
        self,
        grid: tuple[int, int],
        cluster: tuple[int, int],
        threads: int,
        shared_bytes: int,
        overlapping: bool = False,
    ) -> Any:
        """Make a launch configuration with a cluster shape; its stream is set at each launch.

        `overlapping`: the kernel may start before the one ahead on the stream ends, and waits for
        it itself (programmatic dependent launch).
        """
        cuda = self._cuda
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared_bytes
        shape = cuda.CUlaunchAttribute()
        shape.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape.value.clusterDim.x = cluster[0]
        shape.value.clusterDim.y = cluster[1]
        shape.value.clusterDim.z = 1
        attributes = [shape]
        if overlapping:
            early = cuda.CUlaunchAttribute()
            early.id = (
                cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            )
            early.value.programmaticStreamSerializationAllowed = 1
            attributes.append(early)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        return config

    def resident_clusters(self, function: Any, config: Any, entry: str) -> int:
        """How many clusters of a configuration run at once on the current device."""
        return int(
            check(
                self._cuda.cuOccupancyMaxActiveClusters(function, config),
                f"asking how many clusters of {entry} are resident",
            )
        )

    def encode_tensor_map(
        self,
        destination: int,
        address: int,
        extents: tuple[int, int],
        row_bytes: int,
        box: tuple[int, int, int],
        dtype: str,
    ) -> None:
        """Write the 128-byte TMA descriptor of a row-major matrix.

        Parameters
        ----------
        destination : int
            Address of the descriptor, 64-byte aligned.
        address : int
            Of the matrix.
        extents : (int, int)
            Contiguous elements, rows.
        row_bytes : int
            From row to row.
        box : (int, int, int)
            Contiguous elements, rows, and the span of the swizzle in bytes (16: none).
        dtype : "bfloat16" or "float16"
        """
        status = self._encode(
            destination,
            ELEMENTS[dtype].tma,
            2,
            address,
            (ctypes.c_uint64 * 2)(*extents),
            (ctypes.c_uint64 * 1)(row_bytes),
            (ctypes.c_uint32 * 2)(*box[:2]),
            (ctypes.c_uint32 * 2)(1, 1),
            0,
            _SWIZZLES[box[2]],
            _L2_PROMOTION_256B,
            0,
        )
        if status != 0:
            raise DriverError(
                f"the CUDA driver failed at encoding a TMA descriptor (error {status}): address "
                f"{address:#x}, extents {extents}, row stride {row_bytes} bytes, box {box}"
            )

    def launcher(
        self,
        config: Any,
        function: Any,
        arguments: int,
        point_at: Callable[[tuple[int, ...]], None],
    ) -> Callable[[tuple[int, ...], int], None]:
        """Make what launches on operands at some addresses, on a stream, again and again.

        For one thread at a time. The context that is current now is the kernel's; a thread that has
        none gets it.

        Parameters
        ----------
        config
            From `config`.
        function
            From `kernel`.
        arguments : int
            Packed: the address of an array of pointers to them. The driver copies what they point
            at before a launch returns: nothing on the host is read later, by the kernel or by a
            graph that it is captured in.
        point_at : callable
            Puts the operands' addresses into the arguments. Called when they change.
        """
        launch = self._cuda.cuLaunchKernelEx
        context = check(self._cuda.cuCtxGetCurrent(), "cuCtxGetCurrent")
        pointed: tuple[int, ...] | None = None
        configured: int | None = None

        def run(addresses: tuple[int, ...], stream: int) -> None:
            nonlocal pointed, configured
            if addresses is not pointed and addresses != pointed:
                pointed = None  # stays so if it fails
                try:
                    point_at(addresses)
                except DriverError:
                    if not self._entered(context):
                        raise
                    point_at(addresses)
                pointed = addresses
            if stream != configured:
                config.hStream = configured = stream
            result = launch(config, function, arguments, 0)
            if result[0]:
                if self._entered(context):
                    result = launch(config, function, arguments, 0)
                check(result, "cuLaunchKernelEx")

        return run


def _pair(result: Sequence[Any], doing: str) -> tuple[Any, Any]:
    status, first, second = result
    check((status,), doing)
    return first, second


_drivers: list[Driver] = []
_creation = threading.Lock()


def driver() -> Driver:
    """Return the process's driver, created on first use.

    Raises
    ------
    DriverError
        If there is no GPU, the driver is too old, or the process was forked.
    ImportError
        If cuda-python is not installed.
    """
    with _creation:
        if not _drivers:
            _drivers.append(Driver(bindings()))
        return _drivers[0]
