"""The driver of libnrt, against a stand-in that follows the documented C API."""

import ctypes
import gc
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from torch_neuronx import neff
from torch_neuronx.errors import (
    ConfigurationError,
    DeviceError,
    NEFFExecutionError,
    NeffFormatError,
    NeffMismatchError,
    RuntimeUnavailableError,
)
from torch_neuronx.runtimes import nrt
from torch_neuronx.runtimes.interface import MemoryInfo, Usage
from torch_neuronx.runtimes.nrt import NrtRuntime
from torch_neuronx.targets import TRN2, TRN3

SOURCE = Path(__file__).with_name("nrt_stand_in.cpp")
NUMBERS = struct.pack("<6f", 1, 2, 3, 4, 5, 6.5)
DOUBLED = struct.pack("<6f", 2, 4, 6, 8, 10, 13)


def chip_neff() -> bytes:
    """Return a container as the chip's compiler labels it: its own build version, a random UUID."""
    data = bytearray(neff.pack({"def.json": b"{}"}, name="chip", made_for="emulator", version="1"))
    data[40:168] = b"2.28.7631.0".ljust(128, b"\0")
    data[204:220] = os.urandom(16)
    return bytes(data)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nrt") / "libnrt.so.1"
    command = ["g++", "-std=c++17", "-Wall", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o", str(path)]
    subprocess.run(command, check=True, timeout=120)
    return path


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("NRT_STAND_IN_LOG", str(path))
    return path


@pytest.fixture
def runtime(library: Path, tmp_path: Path, log: Path) -> Iterator[NrtRuntime]:
    """Yield a runtime over a fresh copy of the library, which keeps state for the life of a process."""
    copy = tmp_path / "libnrt.so.1"
    shutil.copy(library, copy)
    (tmp_path / "neuron0").touch()
    runtime = NrtRuntime([str(tmp_path / "not-here.so"), str(copy)], devices=str(tmp_path / "neuron[0-9]*"))
    yield runtime
    runtime.close()


def test_the_documented_call_order(runtime: NrtRuntime, log: Path) -> None:
    executable = runtime.load(chip_neff(), 1)
    inputs = [runtime.allocate(1, 24), runtime.allocate(1, 24)]
    inputs[0].write(NUMBERS)
    inputs[1].write(DOUBLED)
    outputs = executable(inputs)
    assert outputs[0].read() == DOUBLED
    assert struct.unpack("<6f", outputs[1].read()) == (4, 8, 12, 16, 20, 26)
    executable.unload()
    for buffer in (*inputs, *outputs):
        buffer.free()
    runtime.close()
    calls = log.read_text().split()
    assert calls == [
        "nrt_init", "nrt_load", "nrt_get_model_tensor_info", "nrt_free_model_tensor_info",
        *["nrt_tensor_allocate"] * 2, *["nrt_tensor_write"] * 2, *["nrt_tensor_allocate"] * 2,
        *["nrt_allocate_tensor_set", *["nrt_add_tensor_to_tensor_set"] * 2] * 2, "nrt_execute",
        *["nrt_destroy_tensor_set"] * 2, *["nrt_tensor_read"] * 2, "nrt_unload", *["nrt_tensor_free"] * 4, "nrt_close",
    ]  # fmt: skip


def test_tensors_are_inputs_then_outputs(runtime: NrtRuntime) -> None:
    tensors = runtime.load(chip_neff(), 0).tensors
    assert [(t.name, t.usage) for t in tensors] == [
        ("input_0", Usage.INPUT),
        ("input_1", Usage.INPUT),
        ("output_0", Usage.OUTPUT),
        ("output_1", Usage.OUTPUT),
    ]
    assert {(t.dtype, t.shape, t.nbytes) for t in tensors} == {("float32", (2, 3), 24)}


def test_the_structures_have_the_documented_layout() -> None:
    info = nrt._TensorInfo
    offsets = {name: getattr(info, name).offset for name in ("usage", "size", "dtype", "shape", "ndim")}
    assert offsets == {"usage": 256, "size": 264, "dtype": 272, "shape": 280, "ndim": 288}
    assert ctypes.sizeof(info) == 296
    assert nrt._TensorInfoArray.first.offset == 8
    assert ctypes.sizeof(nrt._Version) == 224


def test_close_gives_everything_back(runtime: NrtRuntime, log: Path) -> None:
    executable = runtime.load(chip_neff(), 0)
    buffer = runtime.allocate(0, 100)
    assert runtime.memory_info(0) == MemoryInfo(used=100, limit=2**20)
    runtime.close()
    runtime.close()
    calls = log.read_text().split()
    assert sorted(calls[-3:-1]) == ["nrt_tensor_free", "nrt_unload"]
    assert calls.count("nrt_close") == 1
    with pytest.raises(NEFFExecutionError, match="freed"):
        buffer.read()
    with pytest.raises(NEFFExecutionError, match="unloaded"):
        executable([])
    with pytest.raises(RuntimeUnavailableError, match="14 \\(NRT_CLOSED"):
        runtime.allocate(0, 1)


def test_a_dropped_buffer_gives_its_memory_back(runtime: NrtRuntime) -> None:
    for _ in range(4):  # more than the core has room for
        runtime.allocate(0, 2**19)
        gc.collect()
    assert runtime.memory_info(0).used == 0


def test_out_of_memory_and_going_on(runtime: NrtRuntime) -> None:
    kept = runtime.allocate(0, 2**19)
    with pytest.raises(NEFFExecutionError, match=r"allocating 1048576 bytes on core 0.* 4 \(NRT_RESOURCE"):
        runtime.allocate(0, 2**20)
    kept.free()
    runtime.allocate(0, 2**20).free()


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        ("nrt_execute=1003", r"running the program.* 1003 \(NRT_EXEC_COMPLETED_WITH_NUM_ERR"),
        ("nrt_execute=4242", r"4242 \(unknown"),
        ("nrt_load=9", r"loading a NEFF of \d+ bytes on core 0.*not enough free cores"),
        ("nrt_add_tensor_to_tensor_set=3", "adding input_0 to a tensor set"),
        ("nrt_tensor_write=2", "writing 24 bytes"),
        ("nrt_get_model_tensor_info=1", "asking for the program's tensors"),
    ],
)
def test_a_failing_call_names_what_was_done_and_the_status(
    runtime: NrtRuntime, monkeypatch: pytest.MonkeyPatch, fail: str, message: str
) -> None:
    monkeypatch.setenv("NRT_STAND_IN_FAIL", fail)
    with pytest.raises(NEFFExecutionError, match=message):
        run_once(runtime)
    monkeypatch.delenv("NRT_STAND_IN_FAIL")
    gc.collect()
    assert runtime.memory_info(0).used == 0
    assert run_once(runtime) == DOUBLED


def run_once(runtime: NrtRuntime) -> bytes:
    executable = runtime.load(chip_neff(), 0)
    inputs = [runtime.allocate(0, 24), runtime.allocate(0, 24)]
    for buffer in inputs:
        buffer.write(NUMBERS)
    return executable(inputs)[0].read()


def test_a_neff_of_an_unknown_version(runtime: NrtRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRT_STAND_IN_FAIL", "nrt_load=10")
    with pytest.raises(NeffMismatchError, match="NRT_UNSUPPORTED_NEFF_VERSION"):
        runtime.load(chip_neff(), 0)


def test_the_emulators_neffs_are_refused(runtime: NrtRuntime, log: Path) -> None:
    ours = neff.pack({}, name="graph", made_for="emulator", version="1")
    with pytest.raises(
        NeffMismatchError, match=r"'graph' was made for the runtime 'emulator'.*this is the runtime 'nrt'"
    ):
        runtime.load(ours, 0)
    with pytest.raises(NeffFormatError):
        runtime.load(b"not a NEFF", 0)
    assert "nrt_load" not in log.read_text()


def test_inputs_must_fit_the_program(runtime: NrtRuntime) -> None:
    executable = runtime.load(chip_neff(), 0)
    with pytest.raises(NEFFExecutionError, match=r"takes inputs of \[24, 24\] bytes and was given \[24\]"):
        executable([runtime.allocate(0, 24)])
    with pytest.raises(NEFFExecutionError, match="3 bytes do not fill a device buffer of 24"):
        runtime.allocate(0, 24).write(b"abc")


@pytest.mark.parametrize(("family", "target"), [("14", TRN3), ("5", TRN2), ("9", TRN2)])
def test_layout_asks_the_library(
    runtime: NrtRuntime, monkeypatch: pytest.MonkeyPatch, log: Path, family: str, target: object
) -> None:
    monkeypatch.setenv("NRT_STAND_IN_FAMILY", family)
    layout = runtime.layout()
    assert layout.target is target
    assert [core.physical for core in layout.logical_cores] == [(0, 1), (2, 3)]
    assert "nrt_init" not in log.read_text()


def test_layout_of_chosen_cores(runtime: NrtRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "5,7")
    assert [core.index for core in runtime.layout().logical_cores] == [5, 7]
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0-2")
    with pytest.raises(ConfigurationError, match="asks for 3 cores, and libnrt shows 2"):
        runtime.layout()


def test_an_unknown_kind_of_instance(runtime: NrtRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRT_STAND_IN_FAMILY", "2")
    with pytest.raises(RuntimeUnavailableError, match=r"family 2 .*NEURON_PLATFORM_TARGET_OVERRIDE"):
        runtime.layout()
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert runtime.layout().target is TRN2


def test_availability(runtime: NrtRuntime, tmp_path: Path) -> None:
    assert runtime.available().ok
    assert runtime.version() == "2.35.30.0"
    no_library = NrtRuntime([str(tmp_path / "not-here.so")], devices=str(tmp_path / "neuron[0-9]*"))
    assert "not-here.so" in no_library.available().reason
    no_device = NrtRuntime(devices=str(tmp_path / "no-device*"))
    assert "no-device" in no_device.available().reason
    with pytest.raises(RuntimeUnavailableError, match="libnrt cannot be loaded"):
        no_library.allocate(0, 1)


def test_a_library_of_another_api_is_unavailable(tmp_path: Path) -> None:
    source, path = tmp_path / "other.cpp", tmp_path / "libother.so"
    source.write_text('extern "C" int nrt_init(int, const char*, const char*) { return 0; }')
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(path)], check=True, timeout=60)
    (tmp_path / "neuron0").touch()
    availability = NrtRuntime([str(path)], devices=str(tmp_path / "neuron*")).available()
    assert not availability.ok
    assert "nrt_get_version" in availability.reason


def test_a_failed_start(runtime: NrtRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRT_STAND_IN_FAIL", "nrt_init=6")
    with pytest.raises(RuntimeUnavailableError, match=r"nrt_init returned status 6 \(NRT_HW_ERROR"):
        runtime.allocate(0, 1)


def test_a_forked_child_gets_an_error_and_frees_nothing(runtime: NrtRuntime, log: Path) -> None:
    buffer = runtime.allocate(0, 8)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            runtime.allocate(0, 8)
        except DeviceError as error:
            del buffer
            gc.collect()
            runtime.close()
            code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert buffer.read() == bytes(8)
    assert "nrt_tensor_free" not in log.read_text()


def test_statuses_are_the_documented_numbers() -> None:
    assert set(nrt.STATUSES) == {*range(8), 9, 10, 11, 13, 14, 15, 101, *range(1002, 1007), 1100, *range(1200, 1207)}
    assert all(name.startswith("NRT_") for name, _ in nrt.STATUSES.values())
