"""The chip's runtime: ``libnrt.so.1`` through its documented C API.

No chip was at hand when this was written. It is tested against a stand-in library that follows the documented
contract; numbers, names and layouts are those of the API's headers (nrt.h, nrt_experimental.h, nrt_status.h).
"""

import ctypes
import glob
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from torch_neuronx import config
from torch_neuronx.errors import (
    ConfigurationError,
    DeviceError,
    NEFFExecutionError,
    NeffMismatchError,
    RuntimeUnavailableError,
)
from torch_neuronx.neff import CHIP, check_made_for, read_header
from torch_neuronx.runtimes.interface import Availability, Executable, MemoryInfo, Runtime, TensorInfo, Usage
from torch_neuronx.targets import CoreLayout, LogicalCore, find_target

LIBRARIES = ("libnrt.so.1", "/opt/aws/neuron/lib/libnrt.so.1")
"""Where the library is looked for: the loader's path, then the vendor's folder."""
DEVICES = "/dev/neuron[0-9]*"

STATUSES = {
    0: ("NRT_SUCCESS", "success"),
    1: ("NRT_FAILURE", "failure without a more precise status"),
    2: ("NRT_INVALID", "an argument is not valid"),
    3: ("NRT_INVALID_HANDLE", "a handle is not valid"),
    4: ("NRT_RESOURCE", "out of device memory or another resource"),
    5: ("NRT_TIMEOUT", "the operation took too long"),
    6: ("NRT_HW_ERROR", "hardware error"),
    7: ("NRT_QUEUE_FULL", "the execution queue is full"),
    9: ("NRT_LOAD_NOT_ENOUGH_NC", "not enough free cores"),
    10: ("NRT_UNSUPPORTED_NEFF_VERSION", "the runtime does not know this version of NEFF"),
    11: ("NRT_FAIL_HOST_MEM_ALLOC", "out of host memory"),
    13: ("NRT_UNINITIALIZED", "the runtime was not initialized"),
    14: ("NRT_CLOSED", "the runtime was closed"),
    15: ("NRT_QUEUE_EMPTY", "the queue is empty"),
    101: ("NRT_EXEC_UNIT_UNRECOVERABLE", "the execution unit cannot recover; restart the process"),
    1002: ("NRT_EXEC_BAD_INPUT", "an input does not fit the program"),
    1003: ("NRT_EXEC_COMPLETED_WITH_NUM_ERR", "the program met a numerical error (NaN)"),
    1004: ("NRT_EXEC_COMPLETED_WITH_ERR", "the program met an error"),
    1005: ("NRT_EXEC_NC_BUSY", "the core is busy, perhaps with another process"),
    1006: ("NRT_EXEC_OOB", "an index is out of bounds"),
    1100: ("NRT_COLL_PENDING", "a collective is pending"),
    1200: ("NRT_EXEC_HW_ERR_COLLECTIVES", "hardware error in a collective"),
    1201: ("NRT_EXEC_HW_ERR_HBM_UE", "uncorrectable error in device memory"),
    1202: ("NRT_EXEC_HW_ERR_NC_UE", "uncorrectable error in a core"),
    1203: ("NRT_EXEC_HW_ERR_DMA_ABORT", "a DMA was aborted"),
    1204: ("NRT_EXEC_SW_NQ_OVERFLOW", "a notification queue overflowed"),
    1205: ("NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE", "repairable error in device memory"),
    1206: ("NRT_NETWORK_PROXY_FAILURE", "the network proxy failed"),
}
"""Name and meaning of each status; the library need not export its own table."""
_SUCCESS, _UNSUPPORTED_NEFF_VERSION = 0, 10

_DTYPES = {
    1: "uint64", 2: "int8", 3: "uint8", 4: "int16", 5: "uint16", 6: "bfloat16", 7: "float16", 8: "int32",
    9: "uint32", 10: "float32", 11: "float32", 12: "int64", 13: "float8_e3m4", 14: "float8_e4m3", 15: "float8_e5m2",
}  # fmt: skip
"""The library reports float8 tensors of a program as int8."""

_FAMILIES = {**dict.fromkeys(range(5, 10), "trn2"), 14: "trn3", 15: "trn3"}
"""Target by instance family (``nrt_get_instance_info``)."""

_NO_FRAMEWORK = 1
_PLACE_ON_DEVICE = 0
_ANY_COUNT = -1


class _TensorInfo(ctypes.Structure):
    _fields_ = (
        ("name", c_char * 256),
        ("usage", c_int),
        ("size", c_uint64),
        ("dtype", c_int),
        ("shape", POINTER(c_uint32)),
        ("ndim", c_uint32),
    )


class _TensorInfoArray(ctypes.Structure):
    _fields_ = (("count", c_uint64), ("first", _TensorInfo * 0))


class _InstanceInfo(ctypes.Structure):
    _fields_ = (
        ("family", c_uint32),
        ("size", c_uint32),
        ("arch_name", c_char * 16),
        ("device_revision", c_char * 8),
    )


class _MemoryStats(ctypes.Structure):
    _fields_ = (("used", c_size_t), ("limit", c_size_t))


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", c_uint64),
        ("minor", c_uint64),
        ("patch", c_uint64),
        ("maintenance", c_uint64),
        ("detail", c_char * 128),
        ("git_hash", c_char * 64),
    )


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nrt_init": (c_int, c_char_p, c_char_p),
    "nrt_get_version": (POINTER(_Version), c_size_t),
    "nrt_get_visible_vnc_count": (POINTER(c_uint32),),
    "nrt_get_instance_info": (POINTER(_InstanceInfo), c_size_t),
    "nrt_get_vnc_memory_stats": (c_uint32, POINTER(_MemoryStats), c_size_t, POINTER(c_size_t)),
    "nrt_load": (c_void_p, c_size_t, c_int32, c_int32, POINTER(c_void_p)),
    "nrt_unload": (c_void_p,),
    "nrt_get_model_tensor_info": (c_void_p, POINTER(POINTER(_TensorInfoArray))),
    "nrt_free_model_tensor_info": (POINTER(_TensorInfoArray),),
    "nrt_tensor_allocate": (c_int, c_int, c_size_t, c_char_p, POINTER(c_void_p)),
    "nrt_tensor_write": (c_void_p, c_void_p, c_size_t, c_size_t),
    "nrt_tensor_read": (c_void_p, c_void_p, c_size_t, c_size_t),
    "nrt_allocate_tensor_set": (POINTER(c_void_p),),
    "nrt_add_tensor_to_tensor_set": (c_void_p, c_char_p, c_void_p),
    "nrt_execute": (c_void_p, c_void_p, c_void_p),
}
"""Argument types of the functions that return a status."""

_VOID_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nrt_close": (),
    "nrt_tensor_free": (POINTER(c_void_p),),
    "nrt_destroy_tensor_set": (POINTER(c_void_p),),
}


def describe_status(status: int) -> str:
    """Return a status's number, name and meaning."""
    name, meaning = STATUSES.get(status, ("unknown", "no meaning is documented"))
    return f"{status} ({name}: {meaning})"


class _Api:
    """The functions of one loaded library, with their types."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.live: weakref.WeakSet[DeviceBuffer | NrtExecutable] = weakref.WeakSet()
        """What is to be given back before the library is closed."""
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int32
        for name, arguments in _VOID_SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, None

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function and return its status."""
        return int(getattr(self._library, name)(*arguments))

    def call(self, name: str, *arguments: Any, doing: str) -> None:
        """Call a function; raise :class:`NEFFExecutionError` that says what was being done if it fails."""
        status = self.status(name, *arguments)
        if status == _UNSUPPORTED_NEFF_VERSION:
            raise NeffMismatchError(
                f"libnrt does not take the NEFF: status {describe_status(status)}. Compile the program again with the "
                "compiler of this runtime's release."
            )
        if status != _SUCCESS:
            raise NEFFExecutionError(
                f"libnrt failed while {doing}: {name} returned status {describe_status(status)}. Set "
                "NEURON_RT_LOG_LEVEL=INFO for the runtime's own account."
            )

    def void(self, name: str, *arguments: Any) -> None:
        """Call a function that returns nothing."""
        getattr(self._library, name)(*arguments)


def _in_process(process: int, call: Callable[..., object], *arguments: object) -> None:
    """Make a call in the process it belongs to; a forked child has copies of the handles and must not use them."""
    if os.getpid() == process:
        call(*arguments)


class DeviceBuffer:
    """Device memory on one core, given back by :meth:`free` or with the object."""

    def __init__(self, api: _Api, core: int, nbytes: int) -> None:
        """Allocate; raises :class:`NEFFExecutionError` if there is no room."""
        self.nbytes = nbytes
        self._api = api
        self._handle = c_void_p()
        api.call(
            "nrt_tensor_allocate", _PLACE_ON_DEVICE, core, nbytes, None, byref(self._handle),
            doing=f"allocating {nbytes} bytes on core {core}",
        )  # fmt: skip
        self._release = weakref.finalize(
            self, _in_process, os.getpid(), api.void, "nrt_tensor_free", byref(self._handle)
        )
        api.live.add(self)

    @property
    def handle(self) -> c_void_p:
        """The ``nrt_tensor_t*``. Raises :class:`NEFFExecutionError` after :meth:`free`."""
        if not self._release.alive:
            raise NEFFExecutionError("The device buffer was freed. Allocate another.")
        return self._handle

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Copy ``data``, of exactly this buffer's size, to the device."""
        view = memoryview(data).cast("B")
        if view.nbytes != self.nbytes:
            raise NEFFExecutionError(
                f"{view.nbytes} bytes do not fill a device buffer of {self.nbytes}. Match the sizes."
            )
        host = (c_char * self.nbytes).from_buffer_copy(view)
        self._api.call("nrt_tensor_write", self.handle, host, 0, self.nbytes, doing=f"writing {self.nbytes} bytes")

    def read(self) -> bytes:
        """Copy the buffer to the host."""
        host = (c_char * self.nbytes)()
        self._api.call("nrt_tensor_read", self.handle, host, 0, self.nbytes, doing=f"reading {self.nbytes} bytes")
        return bytes(host)

    def free(self) -> None:
        """Give the memory back; a second call does nothing."""
        self._release()


class NrtExecutable(Executable):
    """A NEFF on one core, unloaded by :meth:`unload` or with the object. Its buffers are :class:`DeviceBuffer`."""

    def __init__(self, api: _Api, neff: bytes, core: int) -> None:
        """Load the NEFF."""
        self._api = api
        self._core = core
        self._model = c_void_p()
        api.call(
            "nrt_load", neff, len(neff), core, _ANY_COUNT, byref(self._model),
            doing=f"loading a NEFF of {len(neff)} bytes on core {core}",
        )  # fmt: skip
        self._release = weakref.finalize(self, _in_process, os.getpid(), api.status, "nrt_unload", self._model)
        api.live.add(self)
        self._tensors = self._read_tensors()

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Inputs, then outputs."""
        return self._tensors

    def __call__(self, inputs: Sequence[Any]) -> list[DeviceBuffer]:
        """Run on device buffers, one for each input in order, and return new ones for the outputs."""
        if not self._release.alive:
            raise NEFFExecutionError("The program was unloaded. Load its NEFF again.")
        wanted = [tensor for tensor in self._tensors if tensor.usage is Usage.INPUT]
        if [buffer.nbytes for buffer in inputs] != [tensor.nbytes for tensor in wanted]:
            raise NEFFExecutionError(
                f"The program takes inputs of {[tensor.nbytes for tensor in wanted]} bytes and was given "
                f"{[buffer.nbytes for buffer in inputs]}. Pass one buffer of the right size for each input."
            )
        produced = [tensor for tensor in self._tensors if tensor.usage is Usage.OUTPUT]
        outputs: list[DeviceBuffer] = []
        sets: list[c_void_p] = []
        try:
            for tensor in produced:
                outputs.append(DeviceBuffer(self._api, self._core, tensor.nbytes))
            for infos, buffers in ((wanted, inputs), (produced, outputs)):
                sets.append(self._tensor_set(infos, buffers))
            self._api.call("nrt_execute", self._model, *sets, doing="running the program")
        except Exception:
            for buffer in outputs:
                buffer.free()
            raise
        finally:
            for handle in sets:
                self._api.void("nrt_destroy_tensor_set", byref(handle))
        return outputs

    def unload(self) -> None:
        """Unload the program; a second call does nothing."""
        if self._release.detach() is not None:
            self._api.call("nrt_unload", self._model, doing="unloading the program")

    def _tensor_set(self, infos: Sequence[TensorInfo], buffers: Sequence[DeviceBuffer]) -> c_void_p:
        handle = c_void_p()
        self._api.call("nrt_allocate_tensor_set", byref(handle), doing="making a tensor set")
        for info, buffer in zip(infos, buffers, strict=True):
            self._api.call(
                "nrt_add_tensor_to_tensor_set", handle, info.name.encode(), buffer.handle,
                doing=f"adding {info.name} to a tensor set",
            )  # fmt: skip
        return handle

    def _read_tensors(self) -> tuple[TensorInfo, ...]:
        array = POINTER(_TensorInfoArray)()
        self._api.call("nrt_get_model_tensor_info", self._model, byref(array), doing="asking for the program's tensors")
        try:
            first = ctypes.addressof(array.contents) + _TensorInfoArray.first.offset
            infos = (_TensorInfo * array.contents.count).from_address(first)
            tensors = [
                TensorInfo(
                    name=info.name.decode(),
                    usage=Usage.OUTPUT if info.usage else Usage.INPUT,
                    dtype=_DTYPES.get(info.dtype, "unknown"),
                    shape=tuple(info.shape[: info.ndim]),
                    nbytes=info.size,
                )
                for info in infos
            ]
        finally:
            self._api.status("nrt_free_model_tensor_info", array)
        return tuple(sorted(tensors, key=lambda tensor: tensor.usage is Usage.OUTPUT))


@dataclass(frozen=True, slots=True)
class _Opened:
    api: _Api
    process: int


class NrtRuntime(Runtime):
    """The cores of this machine. The library is opened on first use."""

    name = CHIP

    def __init__(self, libraries: Sequence[str] = LIBRARIES, devices: str = DEVICES) -> None:
        """Prepare for the first of ``libraries`` that loads, where a file matches the pattern ``devices``."""
        self._libraries = libraries
        self._devices = devices
        self._lock = threading.Lock()
        self._library: _Api | None = None
        self._opened: _Opened | None = None

    def available(self) -> Availability:
        """Say whether there is a Neuron device and a library that loads."""
        if not glob.glob(self._devices):
            return Availability(False, f"there is no Neuron device ({self._devices})")
        try:
            self._api()
        except RuntimeUnavailableError as error:
            return Availability(False, str(error))
        return Availability(True)

    def version(self) -> str:
        """Return the library's version."""
        version = _Version()
        self._api().call("nrt_get_version", byref(version), ctypes.sizeof(version), doing="asking for the version")
        return f"{version.major}.{version.minor}.{version.patch}.{version.maintenance}"

    def layout(self) -> CoreLayout:
        """Return the cores that the library shows; it reads ``NEURON_RT_VISIBLE_CORES`` and its like itself."""
        from torch_neuronx import plugins  # plugins carry this runtime

        api = self._api()
        count = c_uint32()
        api.call("nrt_get_visible_vnc_count", byref(count), doing="counting the cores")
        target = find_target(self._target_name(api), plugins.manager().targets())
        lnc = config.get(config.LOGICAL_NC_CONFIG) or target.default_lnc
        visible = config.get(config.RT_VISIBLE_CORES) or tuple(range(count.value))
        if len(visible) != count.value:
            raise ConfigurationError(
                f"{config.RT_VISIBLE_CORES.name} asks for {len(visible)} cores, and libnrt shows {count.value}. Ask "
                "for cores that this machine has."
            )
        return CoreLayout(
            target=target,
            lnc=lnc,
            logical_cores=tuple(LogicalCore(i, tuple(range(i * lnc, (i + 1) * lnc))) for i in visible),
            hbm_bytes_per_core=target.hbm_per_chip // (target.cores_per_chip // lnc),
        )

    def memory_info(self, core: int) -> MemoryInfo:
        """Return the memory of one core as the library accounts it."""
        stats, size = _MemoryStats(), c_size_t()
        self._open().call(
            "nrt_get_vnc_memory_stats", core, byref(stats), ctypes.sizeof(stats), byref(size),
            doing=f"asking for the memory of core {core}",
        )  # fmt: skip
        return MemoryInfo(used=stats.used, limit=stats.limit)

    def allocate(self, core: int, nbytes: int) -> DeviceBuffer:
        """Allocate device memory on one core."""
        return DeviceBuffer(self._open(), core, nbytes)

    def load(self, neff: bytes, core: int) -> NrtExecutable:
        """Load a NEFF of the chip's compiler."""
        check_made_for(read_header(neff), self.name)
        return NrtExecutable(self._open(), neff, core)

    def close(self) -> None:
        """Unload and free everything, and close the library; it cannot be opened again in this process."""
        with self._lock:
            if self._opened is None or self._opened.process != os.getpid():
                return
            for resource in list(self._opened.api.live):
                resource.unload() if isinstance(resource, NrtExecutable) else resource.free()
            self._opened.api.void("nrt_close")
            self._opened = None

    def _api(self) -> _Api:
        if self._library is None:
            causes = []
            for path in self._libraries:
                try:
                    self._library = _Api(ctypes.CDLL(path))
                    break
                except (OSError, AttributeError) as error:  # not there, or not the documented API
                    causes.append(str(error))
            else:
                raise RuntimeUnavailableError(f"libnrt cannot be loaded: {'; '.join(causes)}")
        return self._library

    def _open(self) -> _Api:
        with self._lock:
            if self._opened is None:
                api = self._api()
                status = api.status("nrt_init", _NO_FRAMEWORK, b"", b"")
                if status != _SUCCESS:
                    raise RuntimeUnavailableError(
                        f"libnrt did not start: nrt_init returned status {describe_status(status)}. Check the driver "
                        f"with `neuron-ls`, or set {config.RUNTIME.name}=emulator."
                    )
                self._opened = _Opened(api, os.getpid())
            if self._opened.process != os.getpid():
                raise DeviceError(
                    f"Process {os.getpid()} was forked from process {self._opened.process} after that opened the "
                    "Neuron runtime, and cannot use it. Start worker processes with spawn or forkserver."
                )
            return self._opened.api

    @staticmethod
    def _target_name(api: _Api) -> str:
        override = config.get(config.PLATFORM_TARGET_OVERRIDE)
        if override is not None:
            return override
        info = _InstanceInfo()
        api.call("nrt_get_instance_info", byref(info), ctypes.sizeof(info), doing="asking for the kind of instance")
        if info.family not in _FAMILIES:
            raise RuntimeUnavailableError(
                f"This instance is of family {info.family} ({info.arch_name.decode()!r}), neither Trn2 nor Trn3. "
                f"Set {config.PLATFORM_TARGET_OVERRIDE.name} if it is compatible with one of them."
            )
        return _FAMILIES[info.family]
