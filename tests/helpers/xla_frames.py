"""XLA's side of a custom call without XLA: call frames in memory, and an API that remembers."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import pytest

pytest.importorskip("jax", reason="cuswiglu.jax needs it")

from cuswiglu.common.dtypes import ELEMENTS
from cuswiglu.jax import xla

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
CONTEXT, ERROR = 0xC0FFEE, 0xBAD
_fakes = []  # as XLA's own API, each stays where it is


@dataclass
class FakeXla:
    """`errors` are those that handlers made; `refusal` is what asking for a stream answers."""

    stream: int = 0x5EED
    device: int = 0
    version: tuple[int, int] = (0, 5)
    refusal: bytes | None = None
    errors: list[str] = field(default_factory=list)
    destroyed: list[int] = field(default_factory=list)

    def __post_init__(self):
        functions = {
            "error_create": self._error_create,
            "error_details": self._error_details,
            "error_destroy": self._error_destroy,
            "stream_get": self._stream_get,
            "device_ordinal_get": self._device_ordinal_get,
        }
        self._kept = {name: FUNCTION(function) for name, function in functions.items()}
        self.api = xla.Api(struct_size=ctypes.sizeof(xla.Api))
        self.api.version = xla.Version(ctypes.sizeof(xla.Version), None, *self.version)
        for name, function in self._kept.items():
            setattr(self.api, name, ctypes.cast(function, ctypes.c_void_p).value)
        _fakes.append(self)

    def _error_create(self, address):
        made = xla.ErrorCreate.from_address(address)
        assert made.code == 13
        self.errors.append(made.message.decode())
        return ERROR

    def _error_details(self, address):
        asked = xla.ErrorDetails.from_address(address)
        assert asked.error == ERROR
        asked.message = self.refusal

    def _error_destroy(self, address):
        self.destroyed.append(xla.ErrorDestroy.from_address(address).error)

    def _stream_get(self, address):
        asked = xla.StreamGet.from_address(address)
        assert (asked.struct_size, asked.context) == (32, CONTEXT)
        if self.refusal is not None:
            return ERROR
        asked.stream = self.stream
        return None

    def _device_ordinal_get(self, address):
        asked = xla.DeviceOrdinalGet.from_address(address)
        assert (asked.struct_size, asked.context) == (28, CONTEXT)
        asked.ordinal = self.device

    def metadata(self, handler, without_api=False):
        """What a handler answers when it is registered: version and traits."""
        metadata = xla.Metadata(struct_size=ctypes.sizeof(xla.Metadata))
        base = xla.Extension(ctypes.sizeof(xla.MetadataExtension), xla.METADATA_EXTENSION, None)
        extension = xla.MetadataExtension(base, ctypes.addressof(metadata))
        frame = self._frame(stage=0)
        frame.extension = ctypes.addressof(extension)
        if without_api:
            frame.api = None
        assert handler(ctypes.addressof(frame)) is None
        return (metadata.version.major, metadata.version.minor), metadata.traits

    def call(self, handler, text=b"", arguments=(), results=(), stage=xla.EXECUTE):
        """Call a handler on BF16 arrays; the error it gave, or None."""
        frame = self._frame(stage)
        held = [self._buffers(frame.arguments, arguments), self._buffers(frame.results, results)]
        span = xla.Bytes(ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p), len(text))
        items = (ctypes.c_void_p * 1)(ctypes.addressof(span))
        kinds = (ctypes.c_int * 1)(4)
        frame.attributes = xla.Attributes(
            ctypes.sizeof(xla.Attributes), None, 1, ctypes.addressof(kinds), None,
            ctypes.addressof(items),
        )  # fmt: skip
        before = len(self.errors)
        answer = handler(ctypes.addressof(frame))
        del held
        assert (answer is None) == (len(self.errors) == before)
        return None if answer is None else self.errors[-1]

    def _frame(self, stage):
        return xla.CallFrame(
            ctypes.sizeof(xla.CallFrame), None, ctypes.addressof(self.api), CONTEXT, stage
        )

    def _buffers(self, into, arrays):
        """Point `into` at buffers of arrays; returns what must be kept meanwhile."""
        dims = [(ctypes.c_int64 * array.ndim)(*array.shape) for array in arrays]
        buffers = [
            xla.Buffer(
                ctypes.sizeof(xla.Buffer), None,
                ELEMENTS[array.dtype.name].xla, array.ctypes.data, array.ndim,
                ctypes.addressof(extents),
            )
            for array, extents in zip(arrays, dims, strict=True)
        ]  # fmt: skip
        items = (ctypes.c_void_p * len(buffers))(*map(ctypes.addressof, buffers))
        into.count, into.items = len(buffers), ctypes.addressof(items)
        return dims, buffers, items
