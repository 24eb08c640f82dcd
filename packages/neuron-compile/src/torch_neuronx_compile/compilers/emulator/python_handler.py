"""XLA FFI handlers written in Python: the C structures of ``xla/ffi/api/c_api.h`` (API 0.3), and errors that come back.

XLA calls such a handler on a thread of its own, and ctypes takes the GIL for it. Operands and results are views of
XLA's buffers, not copies.
"""

import ctypes
import itertools
import re
import threading
from collections.abc import Callable
from typing import Any

import torch

Handler = Callable[[list[torch.Tensor], list[torch.Tensor], dict[str, Any]], None]
"""Takes the operands, the results to be written, and the attributes by name."""

_DTYPES = {
    1: torch.bool, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.uint8, 7: torch.uint16,
    8: torch.uint32, 9: torch.uint64, 10: torch.float16, 11: torch.float32, 12: torch.float64, 15: torch.complex64,
    16: torch.bfloat16, 18: torch.complex128, 19: torch.float8_e5m2, 20: torch.float8_e4m3fn,
    33: torch.float8_e8m0fnu,
}  # fmt: skip
_TOKEN = 17
_METADATA = 1
_EXECUTE = 3
_INTERNAL = 13


class _Extension(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    ]


class _Metadata(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("version", _Version),
        ("traits", ctypes.c_uint32),
        ("state_type", ctypes.c_int64),
    ]


class _MetadataExtension(ctypes.Structure):
    _fields_ = [("base", _Extension), ("metadata", ctypes.POINTER(_Metadata))]


class _NewError(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    ]


class _Api(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("new_error", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_NewError))),
    ]


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]

    def text(self) -> str:
        return ctypes.string_at(self.data, self.size).decode() if self.size else ""


class _Scalar(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("value", ctypes.c_void_p)]


class _Array(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


class _Buffers(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("items", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    ]


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("names", ctypes.POINTER(ctypes.POINTER(_Bytes))),
        ("items", ctypes.POINTER(ctypes.c_void_p)),
    ]


class _Frame(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(_Extension)),
        ("api", ctypes.POINTER(_Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("args", _Buffers),
        ("rets", _Buffers),
        ("attrs", _Attributes),
        ("future", ctypes.c_void_p),
    ]


_Entry = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))
_kept: list[Any] = []
"""Entry points that XLA may call as long as the process lives."""
_lock = threading.Lock()
_raised: dict[int, BaseException] = {}
_numbers = itertools.count(1)
_MARK = re.compile(r"\[python handler error (\d+)\]")


def capsule_of(handler: Handler) -> object:
    """Return the capsule of an XLA FFI handler that calls ``handler``."""

    def entry(frame: Any) -> int | None:
        call = frame.contents
        if call.extension and call.extension.contents.type == _METADATA:
            metadata = ctypes.cast(call.extension, ctypes.POINTER(_MetadataExtension)).contents.metadata.contents
            metadata.version.major, metadata.version.minor, metadata.traits = 0, 3, 0
            return None
        if call.stage != _EXECUTE:
            return None
        try:
            handler(_tensors(call.args), _tensors(call.rets), _attributes(call.attrs))
        except BaseException as error:  # nothing may pass through XLA's frames: `reraised` gives it to the caller
            return _refused(call.api.contents, error)
        return None

    function = _Entry(entry)
    _kept.append(function)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    return make(ctypes.cast(function, ctypes.c_void_p), None, None)


def reraised(message: str) -> BaseException | None:
    """Return what a handler raised, given what XLA says of the call that failed; ``None`` where none did."""
    found = _MARK.search(message)
    if found is None:
        return None
    with _lock:
        return _raised.pop(int(found[1]), None)


def _refused(api: Any, error: BaseException) -> int | None:
    number = next(_numbers)
    with _lock:
        _raised[number] = error
    message = f"{type(error).__name__}: {error} [python handler error {number}]".encode()
    made = _NewError(ctypes.sizeof(_NewError), None, message, _INTERNAL)
    pointer: int | None = api.new_error(ctypes.byref(made))
    return pointer


def _tensors(buffers: Any) -> list[torch.Tensor]:
    found = (buffers.items[position].contents for position in range(buffers.size))
    return [_tensor(buffer) for buffer in found if buffer.dtype != _TOKEN]


def _tensor(buffer: Any) -> torch.Tensor:
    dtype, shape = _DTYPES[buffer.dtype], tuple(buffer.dims[: buffer.rank])
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(buffer.data)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def _attributes(attributes: Any) -> dict[str, Any]:
    return {
        attributes.names[position].contents.text(): _attribute(attributes.types[position], attributes.items[position])
        for position in range(attributes.size)
    }


def _attribute(kind: int, address: int) -> Any:
    match kind:
        case 1:
            array = _Array.from_address(address)
            if not array.size:
                return []
            memory = (ctypes.c_char * (array.size * _DTYPES[array.dtype].itemsize)).from_address(array.data)
            return torch.frombuffer(memory, dtype=_DTYPES[array.dtype]).tolist()
        case 2:
            return _attributes(_Attributes.from_address(address))
        case 3:
            scalar = _Scalar.from_address(address)
            dtype = _DTYPES[scalar.dtype]
            return torch.frombuffer((ctypes.c_char * dtype.itemsize).from_address(scalar.value), dtype=dtype).item()
        case 4:
            return _Bytes.from_address(address).text()
    raise TypeError(f"XLA hands over an attribute of the unknown kind {kind}")
