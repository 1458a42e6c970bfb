"""Streams: any object that `stream=` accepts, made CuPy's current stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..common.device import Device
from . import allocate


def on_stream(device: Device, stream: Any) -> AbstractContextManager[int]:
    """Make a device and a stream current; yields the stream's handle, 0 on the CPU.

    Raises
    ------
    TypeError
        If `stream` is not a stream, or is given for arrays on the CPU.
    """
    if device.kind == "cuda":
        return current(allocate.cupy_module(), device.index, stream)
    if stream is not None:
        raise TypeError("stream must be None for arrays on the CPU, got a stream")
    return nullcontext(0)


@contextmanager
def current(cupy: Any, device: int, stream: Any) -> Iterator[int]:
    """Make a CUDA device and a stream current; yields the stream's handle.

    Parameters
    ----------
    cupy : module
    device : int
    stream : cupy.cuda.Stream, int, object with ``__cuda_stream__``, or None
        None keeps CuPy's current stream of the device.

    Raises
    ------
    TypeError
        If `stream` is none of these.
    """
    with cupy.cuda.Device(device):
        if stream is None:
            yield int(cupy.cuda.get_current_stream().ptr)
            return
        with _cupy_stream(cupy, stream, device) as entered:
            yield int(entered.ptr)


def wait(cupy: Any, device: int, handle: int) -> None:
    """Make the current stream wait for the work now queued on another stream of the device."""
    current, other = cupy.cuda.get_current_stream(), _cupy_stream(cupy, handle, device)
    if other.ptr != current.ptr:
        current.wait_event(other.record())


def _cupy_stream(cupy: Any, stream: Any, device: int) -> Any:
    if isinstance(stream, cupy.cuda.Stream):
        return stream
    if isinstance(stream, int) and not isinstance(stream, bool):
        stream = _StreamHandle(stream)
    elif not hasattr(stream, "__cuda_stream__"):
        raise TypeError(
            "stream must be a cupy.cuda.Stream, a stream handle (int) or an object with "
            f"__cuda_stream__, got {type(stream).__name__}"
        )
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(stream)
    return cupy.cuda.ExternalStream(int(stream.__cuda_stream__()[1]), device)


class _StreamHandle:
    """Stream handle as an object with ``__cuda_stream__`` (version 0 of the protocol)."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle
