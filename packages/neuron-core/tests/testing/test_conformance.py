"""Our runtimes and targets pass the suites that others subclass, and the suites find what is wrong."""

from dataclasses import replace
from typing import Any

import pytest

from torch_neuronx.errors import RuntimeUnavailableError
from torch_neuronx.runtimes.emulator import EmulatorRuntime
from torch_neuronx.runtimes.interface import Availability, Runtime
from torch_neuronx.runtimes.nrt import NrtRuntime
from torch_neuronx.targets import TRN2, TRN3, CoreLayout, Target
from torch_neuronx.testing import RuntimeConformance, TargetConformance


class TestEmulator(RuntimeConformance):
    @pytest.fixture
    def runtime(self) -> Runtime:
        return EmulatorRuntime()


class TestNrt(RuntimeConformance):
    @pytest.fixture
    def runtime(self) -> Runtime:
        return NrtRuntime()


class TestTargets(TargetConformance):
    @pytest.fixture(params=[TRN2, TRN3, replace(TRN2, name="trn2-lab", cores_per_chip=2)], ids=lambda t: t.name)
    def target(self, request: pytest.FixtureRequest) -> Target:
        target: Target = request.param
        return target


class Silent(EmulatorRuntime):
    """Says no and not why, and shows cores all the same."""

    name = "Silent Runtime"

    def available(self) -> Availability:
        return Availability(False)


class Shared(EmulatorRuntime):
    """Shows one core twice."""

    def layout(self) -> CoreLayout:
        layout = super().layout()
        return replace(layout, logical_cores=layout.logical_cores[:1] * 2)


def test_the_suite_finds_a_wrong_runtime() -> None:
    suite = RuntimeConformance()
    with pytest.raises(AssertionError):
        suite.test_says_whether_it_is_available(Silent())
    with pytest.raises(AssertionError):
        suite.test_has_a_name_that_a_variable_can_hold(Silent())
    with pytest.raises(pytest.fail.Exception, match=RuntimeUnavailableError.__name__):
        suite.test_an_unavailable_runtime_says_so_when_it_is_asked_for_cores(Silent())
    with pytest.raises(AssertionError):
        suite.test_shows_cores(Shared())


@pytest.mark.parametrize(
    ("change", "test"),
    [
        ({"name": "Trn 9"}, "test_has_a_name_that_a_variable_can_hold"),
        ({"default_lnc": 3}, "test_cores_and_memory_divide"),
        ({"sbuf": 0}, "test_sizes_and_rates_are_positive"),
        ({"native_dtypes": frozenset({"float32", "float7"})}, "test_dtypes_are_torchs"),
        ({"narrowed_dtypes": (("float64", "int4"),)}, "test_dtypes_are_torchs"),
    ],
)
def test_the_suite_finds_a_wrong_target(change: dict[str, Any], test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(TargetConformance(), test)(replace(TRN2, **change))
