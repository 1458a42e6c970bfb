"""CuPy without a GPU: devices, streams, memory and graphs that are only remembered.

`HostCuPy` stands in for what the package uses of CuPy beyond arrays; what else is asked of it is
CuPy's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import weakref
from types import SimpleNamespace

import numpy as np

from tests.helpers.device_arrays import cupy, device_poisoned, on_host
from tests.helpers.host_arrays import BF16, poisoned


class Current:
    """A device or a stream; current inside `with`."""

    host: HostCuPy  # set in the subclasses that a HostCuPy makes

    def __enter__(self):
        self.host._stack(type(self)).append(self)
        return self

    def __exit__(self, *error):
        self.host._stack(type(self)).pop()


class Device(Current):
    def __init__(self, index=None):
        self.id = self.host.device() if index is None else index


class Stream(Current):
    """`captured` is None, or the launches that were there when capture began."""

    handles = itertools.count(0xC0DE)

    def __init__(self, handle=None, *_, non_blocking=False):
        self.ptr = next(self.handles) if handle is None else handle
        self.captured = None

    def record(self):
        return Event(self.host, self.ptr)

    def is_capturing(self):
        return self.captured is not None

    def wait_event(self, event):
        self.host.events.append(("wait", self.ptr, event.stream))

    def synchronize(self):
        self.host.events.append(("synchronize", self.ptr))

    def begin_capture(self):
        assert self.captured is None
        self.captured = len(self.host.driver.launches)

    def end_capture(self):
        """What was launched meanwhile did not run: it is the graph's."""
        launches = self.host.driver.launches
        nodes = [one for one in launches[self.captured :] if one.stream == self.ptr]
        launches[self.captured :] = [one for one in launches[self.captured :] if one not in nodes]
        self.captured = None
        return Graph(self.host, nodes)


class Event:
    """What is on a stream now; done unless the stream is one of the host's `busy`."""

    def __init__(self, host, stream):
        self.host, self.stream = host, stream

    @property
    def done(self):
        return self.stream not in self.host.busy


def _from_external(cls, stream):
    version, handle = stream.__cuda_stream__()
    assert version == 0
    return cls(handle)


class Graph:
    """Launches the arguments that were captured, whatever has become of what they point at."""

    def __init__(self, host, nodes):
        self.host, self.nodes = host, nodes

    def launch(self):
        stream = self.host.cuda.get_current_stream().ptr
        self.host.driver.launches += [dataclasses.replace(one, stream=stream) for one in self.nodes]


class MemoryPool:
    """Gives a freed block to the next who asks for as much; its memory goes when it and they do."""

    host: HostCuPy

    def __init__(self):
        self.free = []
        self.host.pools.add(self)

    def malloc(self, size):
        same = [block for block in self.free if block.nbytes >= size]
        block = same[0] if same else poisoned(-(-size // 2))
        self.free = [other for other in self.free if other is not block]
        if not same:
            self.host.blocks.append((block.ctypes.data, block.nbytes, weakref.ref(block)))
        lease = _Lease(self, block)
        memory = cupy.cuda.UnownedMemory(block.ctypes.data, size, lease, self.host.device())
        return cupy.cuda.MemoryPointer(memory, 0)


class _Lease:
    """Gives a block back to its pool, if that is still there."""

    def __init__(self, pool, block):
        self.pool, self.block = weakref.ref(pool), block

    def __del__(self):
        pool = self.pool()
        if pool is not None:
            pool.free.append(self.block)


class HostCuPy:
    """New arrays are host memory; `copies` are (destination, source, stream) of copyto.

    `driver` is the FakeDriver whose launches streams capture; `events` are what streams waited for;
    `busy` are the streams whose work does not end. `places` says on which device an address lies
    that is not on device 0.
    """

    CURRENT_STREAM = 0x5EED

    def __init__(self, driver=None):
        self.driver = driver
        self.copies, self.events = [], []
        self.busy, self.places = set(), {}
        self.blocks, self.pools = [], weakref.WeakSet()
        self._entered = threading.local()
        external = classmethod(_from_external)
        self.cuda = SimpleNamespace(
            Device=type("Device", (Device,), {"host": self}),
            Stream=type("Stream", (Stream,), {"host": self, "from_external": external}),
            get_current_stream=self._stream,
            alloc=self._alloc,
            get_allocator=lambda: self._allocator,
            using_allocator=self._using_allocator,
            MemoryPointer=cupy.cuda.MemoryPointer,
            UnownedMemory=cupy.cuda.UnownedMemory,
            MemoryPool=type("MemoryPool", (MemoryPool,), {"host": self}),
            runtime=SimpleNamespace(
                getDevice=self.device,
                pointerGetAttributes=lambda address: SimpleNamespace(
                    device=self.places.get(address, 0)
                ),
                deviceSynchronize=lambda: self.events.append(("synchronize", "device")),
            ),
        )
        self.cuda.ExternalStream = self.cuda.Stream

    def __getattr__(self, name):
        return getattr(cupy, name)

    def _stack(self, kind):
        return self._entered.__dict__.setdefault(kind.__name__, [])

    def _stream(self):
        entered = self._stack(self.cuda.Stream)
        return entered[-1] if entered else self.cuda.Stream(self.CURRENT_STREAM)

    def device(self):
        """Index of the current device; -1 where none was made current."""
        entered = self._stack(self.cuda.Device)
        return entered[-1].id if entered else -1

    @contextlib.contextmanager
    def _using_allocator(self, allocator):
        before = self._allocator
        self._entered.allocator = allocator
        yield
        self._entered.allocator = before

    @property
    def _allocator(self):
        return self._entered.__dict__.get("allocator")

    def _alloc(self, size):
        allocator = self._allocator
        return (
            allocator(size)
            if allocator
            else device_poisoned(-(-size // 2), index=self.device()).data
        )

    def state(self, address):
        """Of a `MemoryPool`'s memory: "held" by somebody, "free" to be given again, or "gone"."""
        for first, size, watch in self.blocks:
            block = watch()
            if first <= address < first + size and block is not None:
                free = any(block is other for pool in self.pools for other in pool.free)
                return "free" if free else "held"
        return "gone"

    def ndarray(self, shape, dtype, memory=None, strides=None):
        assert dtype in (BF16, np.float16, np.uint16, np.uint8)
        if memory is None:
            memory = self._alloc(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return cupy.ndarray(shape, dtype, memory, strides=strides)

    def empty(self, shape, dtype):
        return self.ndarray(shape, dtype)

    def copyto(self, destination, source):
        self.copies.append((destination, source, self._stream().ptr))
        on_host(destination)[...] = on_host(source)
