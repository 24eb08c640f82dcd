"""Suites that a runtime or a target must pass. A package that brings one subclasses them in its own tests::

from torch_neuronx.testing import RuntimeConformance

class TestMyRuntime(RuntimeConformance):
    @pytest.fixture
    def runtime(self):
        return MyRuntime()
"""

import dataclasses
from typing import Any

import pytest
import torch

from torch_neuronx import neff, plugins
from torch_neuronx.errors import (
    DuplicatePluginNameError,
    NeffFormatError,
    NeffMismatchError,
    RuntimeUnavailableError,
)
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.runtimes.interface import Availability, Runtime, Usage
from torch_neuronx.targets import DtypeSupport, Target, find_target, lay_out_cores


class RuntimeConformance:
    """What the rest of the project asks of a runtime."""

    @pytest.fixture
    def runtime(self) -> Runtime:
        """The runtime under test; a new object for each test. Override it."""
        raise NotImplementedError("Override the fixture `runtime` to return the runtime under test.")

    @pytest.fixture
    def program(self) -> bytes | None:
        """A NEFF that the runtime can load, or None to leave the tests that need one out."""
        return None

    @pytest.fixture
    def started(self, runtime: Runtime) -> Runtime:
        """The runtime, if it can start on this machine."""
        availability = runtime.available()
        if not availability.ok:
            pytest.skip(f"the runtime {runtime.name!r} cannot start here: {availability.reason}")
        return runtime

    def test_has_a_name_that_a_variable_can_hold(self, runtime: Runtime) -> None:
        """`TORCH_NEURONX_RUNTIME` chooses it by this name."""
        assert isinstance(runtime, Runtime)
        assert runtime.name == runtime.name.strip().lower()
        assert runtime.name not in {"", "auto"}
        assert "," not in runtime.name

    def test_says_whether_it_is_available(self, runtime: Runtime) -> None:
        """It answers and does not raise; where it says no, it says why."""
        availability = runtime.available()
        assert isinstance(availability, Availability)
        assert availability.ok or availability.reason
        assert runtime.available() == availability

    def test_an_unavailable_runtime_says_so_when_it_is_asked_for_cores(self, runtime: Runtime) -> None:
        """The typed error, not whatever went wrong below."""
        if runtime.available().ok:
            pytest.skip(f"the runtime {runtime.name!r} is available")
        with pytest.raises(RuntimeUnavailableError):
            runtime.layout()

    def test_shows_cores(self, started: Runtime) -> None:
        """At least one core, none twice, with the physical cores and the memory of its target."""
        layout = started.layout()
        assert isinstance(layout.target, Target)
        assert layout.logical_cores
        physical = [core for logical in layout.logical_cores for core in logical.physical]
        assert len(set(physical)) == len(physical)
        assert all(len(core.physical) == layout.lnc for core in layout.logical_cores)
        assert len({core.index for core in layout.logical_cores}) == len(layout.logical_cores)
        assert 0 < layout.hbm_bytes_per_core <= layout.target.hbm_per_chip

    def test_knows_the_memory_of_each_core(self, started: Runtime) -> None:
        """Used memory is between nothing and the limit."""
        for index in range(len(started.layout().logical_cores)):
            info = started.memory_info(index)
            assert 0 <= info.used <= info.limit

    @pytest.mark.parametrize("data", [b"", b"no NEFF", bytes(2048)])
    def test_refuses_what_is_no_neff(self, started: Runtime, data: bytes) -> None:
        """The error is typed, whatever the bytes."""
        with pytest.raises(NeffFormatError):
            started.load(data, 0)

    def test_refuses_the_neff_of_another_runtime(self, started: Runtime) -> None:
        """A NEFF says what it was made for."""
        foreign = neff.pack({"program": b"x"}, name="foreign", made_for=f"not-{started.name}", version="1")
        with pytest.raises(NeffMismatchError):
            started.load(foreign, 0)

    def test_loads_a_program(self, started: Runtime, program: bytes | None) -> None:
        """Inputs come before outputs, and a program can be unloaded twice."""
        if program is None:
            pytest.skip("the suite was given no program")
        executable = started.load(program, 0)
        usages = [tensor.usage for tensor in executable.tensors]
        assert usages == sorted(usages, key=[Usage.INPUT, Usage.OUTPUT].index)
        executable.unload()
        executable.unload()

    def test_closes_twice(self, runtime: Runtime) -> None:
        """A second call does nothing, and neither does closing what was never used."""
        runtime.close()
        runtime.close()


class TargetConformance:
    """What the rest of the project asks of a target."""

    @pytest.fixture
    def target(self) -> Target:
        """The target under test. Override it."""
        raise NotImplementedError("Override the fixture `target` to return the target under test.")

    def test_has_a_name_that_a_variable_can_hold(self, target: Target) -> None:
        """`NEURON_PLATFORM_TARGET_OVERRIDE` chooses it by this name."""
        assert target.name == target.name.strip().lower()
        assert target.name
        assert "," not in target.name

    def test_is_plain_data(self, target: Target) -> None:
        """Frozen, hashable, and equal to its own copy: it goes into keys."""
        assert dataclasses.replace(target) == target
        assert hash(dataclasses.replace(target)) == hash(target)
        with pytest.raises(dataclasses.FrozenInstanceError):
            target.name = "other"  # type: ignore[misc]

    def test_cores_and_memory_divide(self, target: Target) -> None:
        """Every logical core has as many physical cores, and as much memory, as every other."""
        assert target.cores_per_chip > 0
        assert target.cores_per_chip % target.default_lnc == 0
        layout = lay_out_cores(target, {})
        assert len(layout.logical_cores) == target.cores_per_chip // target.default_lnc
        assert layout.hbm_bytes_per_core * len(layout.logical_cores) <= target.hbm_per_chip

    def test_sizes_and_rates_are_positive(self, target: Target) -> None:
        """Sizes in bytes, rates per second."""
        figures: dict[str, Any] = {
            field.name: getattr(target, field.name)
            for field in dataclasses.fields(target)
            if isinstance(getattr(target, field.name), int | float)
        }
        assert [name for name, value in figures.items() if value <= 0] == []
        assert all(rate > 0 for _, rate in target.tensor_flops)

    def test_dtypes_are_torchs(self, target: Target) -> None:
        """Names as torch has them; what is computed in another dtype is computed in one that the chip has."""
        names = {*target.native_dtypes, *dict(target.narrowed_dtypes), *dict(target.tensor_flops)}
        assert [name for name in names if not isinstance(getattr(torch, name, None), torch.dtype)] == []
        for wide, narrow in target.narrowed_dtypes:
            assert target.dtype_support(wide) is DtypeSupport.NARROWED
            assert target.dtype_support(narrow) is DtypeSupport.NATIVE
            assert target.computed_in(wide) == narrow
        assert target.dtype_support("float32") is DtypeSupport.NATIVE

    def test_is_found_once_a_plugin_registers_it(self, target: Target) -> None:
        """By its name, beside the targets that are there already."""
        manager = plugins.PluginManager([])
        if target.name in manager.targets():
            assert manager.targets()[target.name] == target
            return
        manager.register(_TargetPlugin(target), "conformance")
        assert find_target(target.name, manager.targets()) == target
        manager.register(_TargetPlugin(target), "conformance-again")
        with pytest.raises(DuplicatePluginNameError):
            manager.targets()


class _TargetPlugin:
    def __init__(self, target: Target) -> None:
        self._target = target

    @hookimpl
    def torch_neuronx_register_targets(self) -> list[Target]:
        return [self._target]
