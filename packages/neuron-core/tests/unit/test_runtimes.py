"""Selection of a runtime, and the emulator's."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from torch_neuronx import neff, plugins
from torch_neuronx.compilers import Compiler, CompileRequest
from torch_neuronx.errors import ConfigurationError, MissingExtraError, NeffMismatchError, RuntimeUnavailableError
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.neff import Neff
from torch_neuronx.runtimes.emulator import EmulatorRuntime
from torch_neuronx.runtimes.interface import Availability, Executable, TensorInfo
from torch_neuronx.runtimes.nrt import NrtRuntime
from torch_neuronx.runtimes.select import select_runtime


class Remote(EmulatorRuntime):
    name = "remote"

    def available(self) -> Availability:
        return Availability(False, "the network is down")


class Echo(Executable):
    tensors: tuple[TensorInfo, ...] = ()

    def __init__(self, files: Any) -> None:
        self.files = files

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return inputs

    def unload(self) -> None:
        pass


@dataclass
class EchoCompiler:
    name: str = "echo"
    runtime: str = "emulator"

    def version(self) -> str:
        return "1"

    def compile(self, request: CompileRequest) -> bytes:
        files = {"program": request.program}
        return neff.pack(files, name=request.graph, made_for=self.runtime, version=f"{self.name}-{self.version()}")

    def load(self, neff: Neff, core: int) -> Executable:
        return Echo(neff.files)


class Plugin:
    @hookimpl
    def torch_neuronx_register_runtimes(self) -> list[Remote]:
        return [Remote()]

    @hookimpl
    def torch_neuronx_register_compilers(self) -> list[Compiler]:
        return [EchoCompiler()]


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> plugins.PluginManager:
    """Return a manager without installed plugins in the place of the process's own."""
    manager = plugins.PluginManager([])
    monkeypatch.setattr(plugins, "manager", lambda: manager)
    absent = Availability(False, "there is no Neuron device")  # also where these tests run on a Trn2
    monkeypatch.setattr(NrtRuntime, "available", lambda self: absent)
    return manager


def test_auto_is_the_emulator_where_there_is_no_neuron_device(manager: plugins.PluginManager) -> None:
    assert select_runtime({}).name == "emulator"
    assert select_runtime({"TORCH_NEURONX_RUNTIME": "auto"}).name == "emulator"


def test_auto_is_nrt_where_it_is_available(manager: plugins.PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NrtRuntime, "available", lambda self: Availability(True))
    assert select_runtime({}).name == "nrt"
    assert select_runtime({"TORCH_NEURONX_RUNTIME": "emulator"}).name == "emulator"


def test_the_selected_runtime_is_one_object(manager: plugins.PluginManager) -> None:
    assert select_runtime({}) is select_runtime({})


def test_a_runtime_that_cannot_start(manager: plugins.PluginManager) -> None:
    with pytest.raises(RuntimeUnavailableError, match=r"'nrt' cannot start: there is no Neuron device"):
        select_runtime({"TORCH_NEURONX_RUNTIME": "nrt"})
    manager.register(Plugin(), "remote-plugin")
    with pytest.raises(RuntimeUnavailableError, match="'remote' cannot start: the network is down"):
        select_runtime({"TORCH_NEURONX_RUNTIME": "remote"})


def test_a_runtime_that_nobody_registers(manager: plugins.PluginManager) -> None:
    with pytest.raises(ConfigurationError, match=r"no runtime 'gpu'.*one of: auto, emulator, nrt"):
        select_runtime({"TORCH_NEURONX_RUNTIME": "gpu"})


class TestEmulator:
    def test_layout_takes_the_memory_from_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert EmulatorRuntime().layout().hbm_bytes_per_core == 24 * 2**30
        monkeypatch.setenv("TORCH_NEURONX_EMULATOR_HBM_BYTES", "64MiB")
        assert EmulatorRuntime().layout().hbm_bytes_per_core == 64 * 2**20
        monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "3")
        assert [core.index for core in EmulatorRuntime().layout().logical_cores] == [3]

    def test_the_chips_neffs_are_refused(self, manager: plugins.PluginManager) -> None:
        chips = bytearray(neff.pack({}, name="chip", made_for="emulator", version="1"))
        chips[40:168] = b"2.28.7631.0".ljust(128, b"\0")
        with pytest.raises(NeffMismatchError, match="made for the runtime 'nrt'"):
            EmulatorRuntime().load(bytes(chips), 0)

    def test_without_a_compiler_the_error_says_what_to_install(self, manager: plugins.PluginManager) -> None:
        with pytest.raises(MissingExtraError, match=r"pip install 'torch-neuronx\[compile\]'"):
            EmulatorRuntime().load(neff.pack({}, name="g", made_for="emulator", version="1"), 0)

    def test_a_registered_compiler_loads_what_it_compiled(self, manager: plugins.PluginManager) -> None:
        manager.register(Plugin(), "echo-plugin")
        compiled = manager.compilers()["echo"].compile(CompileRequest(b"module", "g", "trn2", 2, {}))
        executable = EmulatorRuntime().load(compiled, 0)
        assert isinstance(executable, Echo)
        assert executable.files == {"program": b"module"}


def test_backward_runs_in_the_thread_that_opened_the_device() -> None:
    script = """
import threading, torch
x = torch.ones(2, device="neuron", requires_grad=True)
assert not torch.autograd.is_multithreading_enabled()
seen = []
class Spy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        seen.append(threading.get_ident())
        return grad * 2
Spy.apply(x).sum().backward()
assert seen == [threading.get_ident()]
assert x.grad.tolist() == [2, 2]
with torch.autograd.set_multithreading_enabled(True):
    Spy.apply(x).sum().backward()
assert seen[1] != seen[0]
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=120)
