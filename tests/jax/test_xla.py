"""XLA's foreign function interface in ctypes: as jaxlib's header says, in fake frames and real."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.host_arrays import bits, draw, poisoned

jax = pytest.importorskip("jax", reason="cuswiglu.jax needs it")

from cuswiglu.common.dtypes import ELEMENTS
from cuswiglu.jax import xla
from tests.helpers.xla_frames import ERROR, FakeXla

# The header


def header():
    text = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", r"\1* \1", text)


def declared(text, name):
    """Members of a C structure as ctypes fields."""
    body = re.search(rf"struct {name} \{{(.*?)\n\}}", text, re.DOTALL)[1]
    members = [" ".join(one.split()) for one in body.split(";") if one.strip()]
    return [(member.split()[-1].lstrip("*"), kind(text, member)) for member in members]


def kind(text, member):
    named = member.replace("const ", "").replace("struct ", "").rsplit(" ", 1)[0]
    if "*" in member:
        return ctypes.c_void_p
    plain = {
        "size_t": ctypes.c_size_t,
        "int": ctypes.c_int,
        "int32_t": ctypes.c_int32,
        "int64_t": ctypes.c_int64,
        "XLA_FFI_Handler_Traits": ctypes.c_uint32,
    }
    if named in plain:
        return plain[named]
    if re.search(rf"enum \{{[^}}]*\}} {named};", text):
        return ctypes.c_int
    return type(named, (ctypes.Structure,), {"_fields_": declared(text, named)})


#: Structure here -> in the header, and where the two are named differently.
STRUCTURES = {
    xla.Version: ("XLA_FFI_Api_Version", {"major": "major_version", "minor": "minor_version"}),
    xla.Api: (
        "XLA_FFI_Api",
        {
            "version": "api_version",
            "error_create": "XLA_FFI_Error_Create",
            "error_destroy": "XLA_FFI_Error_Destroy",
            "stream_get": "XLA_FFI_Stream_Get",
            "device_ordinal_get": "XLA_FFI_DeviceOrdinal_Get",
        },
    ),
    xla.Buffer: ("XLA_FFI_Buffer", {}),
    xla.Buffers: ("XLA_FFI_Args", {"count": "size", "items": "args"}),
    xla.Attributes: ("XLA_FFI_Attrs", {"count": "size", "items": "attrs"}),
    xla.Bytes: ("XLA_FFI_ByteSpan", {"address": "ptr", "size": "len"}),
    xla.CallFrame: (
        "XLA_FFI_CallFrame",
        {"context": "ctx", "arguments": "args", "results": "rets", "attributes": "attrs"},
    ),
    xla.Metadata: ("XLA_FFI_Metadata", {"version": "api_version"}),
    xla.MetadataExtension: ("XLA_FFI_Metadata_Extension", {"base": "extension_base"}),
    xla.ErrorCreate: ("XLA_FFI_Error_Create_Args", {"code": "errc"}),
    xla.ErrorDestroy: ("XLA_FFI_Error_Destroy_Args", {}),
    xla.StreamGet: ("XLA_FFI_Stream_Get_Args", {"context": "ctx"}),
    xla.DeviceOrdinalGet: (
        "XLA_FFI_DeviceOrdinal_Get_Args",
        {"context": "ctx", "ordinal": "device_ordinal"},
    ),
}


@pytest.mark.parametrize("ours", STRUCTURES, ids=lambda ours: ours.__name__)
def test_members_lie_where_the_header_puts_them(ours):
    text = header()
    name, names = STRUCTURES[ours]
    theirs = type(name, (ctypes.Structure,), {"_fields_": declared(text, name)})
    for member, _ in ours._fields_:
        if member in ("internal", "error_details", "handler_register", "others"):
            continue  # not used by that name, or named differently from version to version
        other = names.get(member, "extension_start" if member == "extension" else member)
        found, expected = getattr(ours, member), getattr(theirs, other)
        assert (found.offset, found.size) == (expected.offset, expected.size), member


@pytest.mark.parametrize(
    ("ours", "name"),
    [
        (xla.METADATA_EXTENSION, "XLA_FFI_Extension_Metadata"),
        (xla.EXECUTE, "XLA_FFI_ExecutionStage_EXECUTE"),
        (ELEMENTS["bfloat16"].xla, "XLA_FFI_DataType_BF16"),
        (ELEMENTS["float16"].xla, "XLA_FFI_DataType_F16"),
        (xla._STRING, "XLA_FFI_AttrType_STRING"),
        (xla._INTERNAL, "XLA_FFI_Error_Code_INTERNAL"),
    ],
)
def test_numbers_are_the_headers(ours, name):
    assert int(re.search(rf"\b{name} = (\d+)", header())[1]) == ours


def test_the_known_major_version_is_the_headers():
    assert f"#define XLA_FFI_API_MAJOR {xla.KNOWN_MAJOR}" in header()


# Frames made by hand


def refuse(call):
    raise ValueError("x must be something else")


@pytest.mark.parametrize("version", [(0, 1), (0, 5), (0, 77)])
def test_metadata_say_xlas_own_version_and_that_graphs_may_record_it(version):
    handler = xla.handler(refuse)
    assert FakeXla(version=version).metadata(handler) == (version, 1)


def test_metadata_are_version_0_1_where_xla_does_not_say_its_own():
    assert FakeXla().metadata(xla.handler(refuse), without_api=True) == ((0, 1), 1)


def test_metadata_never_claim_an_unknown_major_version():
    """XLA then refuses to register the handler."""
    (major, _), _ = FakeXla(version=(1, 0)).metadata(xla.handler(refuse))
    assert major == 0


def test_a_call_has_the_attribute_the_arrays_the_stream_and_the_device():
    found = {}

    def look(call):
        found.update(
            attribute=call.attribute,
            addresses=call.addresses,
            buffers=call.buffers,
            stream=call.stream,
            device=call.device,
        )

    x, scalar, out = poisoned(3, 5), poisoned(1).reshape(()), poisoned(2, 7)
    fake = FakeXla(stream=0xABCDEF0123, device=3)
    assert fake.call(xla.handler(look), b"text\x00more", [x, scalar], [out]) is None
    assert found == {
        "attribute": b"text\x00more",
        "addresses": [x.ctypes.data, scalar.ctypes.data, out.ctypes.data],
        "buffers": [(16, (3, 5)), (16, ()), (16, (2, 7))],
        "stream": 0xABCDEF0123,
        "device": 3,
    }


@pytest.mark.parametrize("stage", [0, 1, 2, 4])
def test_only_the_execute_stage_runs(stage):
    assert FakeXla().call(xla.handler(refuse), stage=stage) is None


def test_what_is_raised_becomes_an_error_of_xla():
    message = FakeXla().call(xla.handler(refuse))
    assert message == "cuswiglu: ValueError: x must be something else"


def test_even_an_interrupt_does_not_cross_c():
    def interrupt(call):
        raise KeyboardInterrupt

    assert "KeyboardInterrupt" in FakeXla().call(xla.handler(interrupt))


def test_what_xla_refuses_is_told_and_its_error_freed():
    fake = FakeXla(refusal=b"there is no stream here")
    message = fake.call(xla.handler(lambda call: call.stream))
    assert message == "cuswiglu: XlaError: there is no stream here"
    assert fake.destroyed == [ERROR]


def test_an_unknown_major_version_is_refused():
    message = FakeXla(version=(1, 2)).call(xla.handler(lambda call: None))
    assert "version 1.2, cuswiglu knows 0.x: update cuswiglu" in message


def test_an_api_that_is_too_short_is_refused():
    fake = FakeXla()
    fake.api.struct_size = xla.Api.device_ordinal_get.offset
    assert "cannot tell a call's device: update JAX" in fake.call(xla.handler(lambda call: None))


# XLA itself, on the CPU


@pytest.fixture
def register():
    """register(execute): a custom call of that handler on the CPU."""
    made = []

    def register(execute):
        made.append(xla.handler(execute))
        name = f"cuswiglu_test_{id(made[-1]):x}"
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(made[-1]), platform="cpu")
        registered.append(made[-1])
        return name

    return register


registered = []  # XLA keeps their addresses


def test_xla_calls_the_handler_with_its_arrays(register):
    """The handler copies what lies at the argument's address to the result's."""
    seen = []

    def copy(call):
        source, target = call.addresses
        ctypes.memmove(target, source, 2 * 4 * 16)
        seen.append((call.attribute, call.buffers))

    call = jax.ffi.ffi_call(register(copy), jax.ShapeDtypeStruct((4, 16), "bfloat16"))
    x, *_ = draw(4, 16, 8)
    found = jax.jit(lambda x: call(x, call="what to do"))(x)
    assert (bits(found) == bits(x)).all()
    assert seen == [(b"what to do", [(ELEMENTS["bfloat16"].xla, (4, 16))] * 2)]


def test_xla_raises_what_the_handler_raises(register):
    call = jax.ffi.ffi_call(register(refuse), jax.ShapeDtypeStruct((4,), "bfloat16"))
    with pytest.raises(Exception, match="cuswiglu: ValueError: x must be something else"):
        jax.block_until_ready(jax.jit(lambda: call(call=""))())


def test_xlas_own_refusal_is_raised(register):
    """There is no CUDA stream on the CPU."""

    def ask(call):
        assert call.device == 0
        return call.stream

    call = jax.ffi.ffi_call(register(ask), jax.ShapeDtypeStruct((4,), "bfloat16"))
    with pytest.raises(Exception, match=r"cuswiglu: XlaError: .*(stream|GPU)"):
        jax.block_until_ready(jax.jit(lambda: call(call=""))())


def test_transposed_checkpoint_matrices_reach_the_call_without_a_copy(register):
    """XLA takes two transposes in a row for none: operands are the program's parameters."""
    target = register(lambda call: None)
    kind = jax.ShapeDtypeStruct((4, 24), "bfloat16")

    def program(x, checkpoint):
        weight = checkpoint.T  # as users write it
        return jax.ffi.ffi_call(target, kind)(x, weight.T, call="")

    arguments = np.zeros((4, 16), "bfloat16"), np.zeros((24, 16), "bfloat16")
    text = jax.jit(program).lower(*arguments).compile().as_text()
    assert target in text
    assert " transpose(" not in text
    assert " copy(" not in text
