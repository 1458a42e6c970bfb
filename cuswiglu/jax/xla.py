"""XLA's foreign function interface, spoken with ctypes: call frames read, errors given back.

The structures are those of xla/ffi/api/c_api.h, which jaxlib's wheel carries. Each says its own
size; members are only ever added behind those named here, so that one description serves API 0.1
(JAX 0.6) and all that came since.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

KNOWN_MAJOR = 0
COMMAND_BUFFER_COMPATIBLE = 1  # XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE
METADATA_EXTENSION = 1
EXECUTE = 3  # XLA_FFI_ExecutionStage_EXECUTE
_STRING = 4  # XLA_FFI_AttrType_STRING
_INTERNAL = 13  # XLA_FFI_Error_Code_INTERNAL

_POINTER = ctypes.sizeof(ctypes.c_void_p)
_HEAD = (("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p))


class Version(ctypes.Structure):
    _fields_ = (*_HEAD, ("major", ctypes.c_int), ("minor", ctypes.c_int))


class Api(ctypes.Structure):
    """What XLA offers, as addresses of functions that take a structure each."""

    _fields_ = (
        *_HEAD,
        ("version", Version),
        ("internal", ctypes.c_void_p),
        ("error_create", ctypes.c_void_p),
        ("error_details", ctypes.c_void_p),
        ("error_destroy", ctypes.c_void_p),
        ("handler_register", ctypes.c_void_p),
        ("stream_get", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 12),
        ("device_ordinal_get", ctypes.c_void_p),
    )


class Buffer(ctypes.Structure):
    _fields_ = (
        *_HEAD,
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.c_void_p),
    )


class Buffers(ctypes.Structure):
    """Arguments, or results: `items` is an array of pointers to `Buffer`."""

    _fields_ = (
        *_HEAD,
        ("count", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("items", ctypes.c_void_p),
    )


class Attributes(ctypes.Structure):
    _fields_ = (
        *_HEAD,
        ("count", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("items", ctypes.c_void_p),
    )


class Bytes(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


class CallFrame(ctypes.Structure):
    _fields_ = (
        *_HEAD,
        ("api", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", Buffers),
        ("results", Buffers),
        ("attributes", Attributes),
    )


class Extension(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
    )


class Metadata(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("version", Version),
        ("traits", ctypes.c_uint32),
    )


class MetadataExtension(ctypes.Structure):
    _fields_ = (("base", Extension), ("metadata", ctypes.c_void_p))


class ErrorCreate(ctypes.Structure):
    _fields_ = (*_HEAD, ("message", ctypes.c_char_p), ("code", ctypes.c_int))


class ErrorDetails(ctypes.Structure):
    """Older versions know no code."""

    _fields_ = (
        *_HEAD,
        ("error", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )


class ErrorDestroy(ctypes.Structure):
    _fields_ = (*_HEAD, ("error", ctypes.c_void_p))


class StreamGet(ctypes.Structure):
    _fields_ = (*_HEAD, ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p))


class DeviceOrdinalGet(ctypes.Structure):
    _fields_ = (*_HEAD, ("context", ctypes.c_void_p), ("ordinal", ctypes.c_int32))


class XlaError(RuntimeError):
    """XLA refused what a handler asked of it, or speaks in a way that is not known here."""


#: XLA's functions return at once: the interpreter's lock is kept.
_FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def _bytes_to(structure: type[ctypes.Structure], last: str) -> int:
    """Size of a structure up to the end of a member."""
    member = getattr(structure, last)
    return int(member.offset + member.size)


class _Functions:
    """XLA's functions, ready to be called.

    Raises
    ------
    XlaError
        If the API has another major version, or is too old to have them all.
    """

    def __init__(self, address: int) -> None:
        api = Api.from_address(address)
        version = api.version
        if version.major != KNOWN_MAJOR:
            raise XlaError(
                f"XLA's FFI has version {version.major}.{version.minor}, cuswiglu knows "
                f"{KNOWN_MAJOR}.x: update cuswiglu, or use a JAX between 0.6 and 0.12"
            )
        if api.struct_size < _bytes_to(Api, "device_ordinal_get"):
            raise XlaError(
                f"XLA's FFI {version.major}.{version.minor} cannot tell a call's device: update JAX"
            )
        self._details = _FUNCTION(api.error_details)
        self._destroy = _FUNCTION(api.error_destroy)
        self._stream_get = _FUNCTION(api.stream_get)
        self._device_ordinal_get = _FUNCTION(api.device_ordinal_get)

    def stream(self, context: int) -> int:
        """The CUDA stream that a call is to work on."""
        asked = StreamGet(ctypes.sizeof(StreamGet), None, context, None)
        self._check(self._stream_get(ctypes.addressof(asked)))
        return asked.stream or 0

    def device(self, context: int) -> int:
        """The CUDA device of a call."""
        asked = DeviceOrdinalGet(_bytes_to(DeviceOrdinalGet, "ordinal"), None, context, -1)
        self._check(self._device_ordinal_get(ctypes.addressof(asked)))
        return int(asked.ordinal)

    def _check(self, error: int | None) -> None:
        if not error:
            return
        details = ErrorDetails(_bytes_to(ErrorDetails, "code"), None, error, None, 0)
        self._details(ctypes.addressof(details))
        message = (details.message or b"").decode(errors="replace")
        destroyed = ErrorDestroy(ctypes.sizeof(ErrorDestroy), None, error)
        self._destroy(ctypes.addressof(destroyed))
        raise XlaError(message)


_functions: dict[int, _Functions] = {}


class Call:
    """One call of a handler that has a single attribute, a string; valid until it returns."""

    def __init__(self, frame: CallFrame) -> None:
        needed = _bytes_to(CallFrame, "attributes")
        if frame.struct_size < needed:
            raise XlaError(f"XLA's call frame has {frame.struct_size} bytes, {needed} are needed")
        self._frame = frame
        functions = _functions.get(frame.api)
        if functions is None:
            functions = _functions[frame.api] = _Functions(frame.api)
        self._functions = functions

    @property
    def attribute(self) -> bytes:
        """The attribute's text."""
        attributes = self._frame.attributes
        if attributes.count != 1 or ctypes.c_int.from_address(attributes.types).value != _STRING:
            raise XlaError("the call must have one attribute, a string")
        text = Bytes.from_address(_pointers(attributes.items, 1)[0])
        return ctypes.string_at(text.address, text.size)

    @property
    def addresses(self) -> list[int]:
        """Where arguments lie, and results behind them."""
        at = Buffer.data.offset
        return [ctypes.c_uint64.from_address(item + at).value for item in self._items()]

    @property
    def buffers(self) -> list[tuple[int, tuple[int, ...]]]:
        """Element type (XLA_FFI_DataType) and dimensions of arguments, and of results."""
        found = [Buffer.from_address(item) for item in self._items()]
        return [
            (
                one.dtype,
                tuple((ctypes.c_int64 * one.rank).from_address(one.dims)) if one.rank else (),
            )
            for one in found
        ]

    @property
    def stream(self) -> int:
        """Handle of the CUDA stream to work on."""
        return self._functions.stream(self._frame.context)

    @property
    def device(self) -> int:
        """Index of the CUDA device to work on."""
        return self._functions.device(self._frame.context)

    def _items(self) -> list[int]:
        arguments, results = self._frame.arguments, self._frame.results
        return [
            *_pointers(arguments.items, arguments.count),
            *_pointers(results.items, results.count),
        ]


def _pointers(address: int | None, count: int) -> list[int]:
    return (ctypes.c_uint64 * count).from_address(address)[:] if address and count else []


def handler(execute: Callable[[Call], None]) -> Any:
    """A function that XLA can call, made of one in Python.

    Parameters
    ----------
    execute : function
        Puts work on the call's stream. What it raises becomes XLA's error: nothing is thrown across
        C. It must only launch: XLA may record the call in a CUDA graph, and replay that.

    Returns
    -------
    ctypes function
        To be kept as long as the process.
    """

    def run(address: int) -> int | None:
        frame = CallFrame.from_address(address)
        try:
            if frame.extension:
                extension = MetadataExtension.from_address(frame.extension)
                if extension.base.type == METADATA_EXTENSION:
                    _describe(frame, Metadata.from_address(extension.metadata))
                    return None
            if frame.stage == EXECUTE:
                execute(Call(frame))
        except BaseException as error:
            return _error(frame, error)
        return None

    return _HANDLER(run)


def _describe(frame: CallFrame, metadata: Metadata) -> None:
    """XLA asks for the version a handler was made for, and for its traits."""
    # Another major version is refused by XLA, in words of its own. Any minor one will do, as far as
    # can be known here: what a call needs of it is looked for then. 0.1 does not give its API.
    metadata.version.major = KNOWN_MAJOR
    metadata.version.minor = Api.from_address(frame.api).version.minor if frame.api else 1
    metadata.traits = COMMAND_BUFFER_COMPATIBLE


def _error(frame: CallFrame, error: BaseException) -> int | None:
    """An error of XLA's; freed by XLA."""
    message = f"cuswiglu: {type(error).__name__}: {error}".encode()
    made = ErrorCreate(_bytes_to(ErrorCreate, "code"), None, message, _INTERNAL)
    address: int | None = _FUNCTION(Api.from_address(frame.api).error_create)(
        ctypes.addressof(made)
    )
    return address
