"""The pytest plugin: fixtures for tests on the device, and the marker for tests that need the chip.

pytest imports it at every start, so it imports torch inside its fixtures only.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

    from torch_neuronx.testing.compare import Comparison

MARKER = "neuron_device"

pytest.register_assert_rewrite("torch_neuronx.testing.conformance")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", f"{MARKER}: needs a Neuron device; skipped where the runtime is another")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need the chip where there is none."""
    if item.get_closest_marker(MARKER) is None:
        return
    from torch_neuronx import plugins

    availability = plugins.manager().runtimes()["nrt"].available()
    if not availability.ok:
        pytest.skip(f"needs a Neuron device: {availability.reason}")


@pytest.fixture
def neuron_device() -> "torch.device":
    """The current Neuron device, with its index; the test fails with the cause if the device cannot be used."""
    import torch

    from torch_neuronx._autoload import autoload

    autoload()  # nothing new, unless autoload is turned off or the package is not installed
    return torch.empty(0, device="neuron").device


@pytest.fixture
def compare_with_cpu(neuron_device: "torch.device") -> "Callable[..., Comparison]":
    """The function :func:`torch_neuronx.testing.compare_with_cpu`."""
    from torch_neuronx.testing.compare import compare_with_cpu as compare

    return compare


class OpTracking:
    """Operators that ran on the device since the test began, or since `clear`."""

    @property
    def executed(self) -> list[str]:
        """Names such as `aten::mm`, one per call."""
        from torch_neuronx.ops.tracking import get_executed_ops

        return get_executed_ops()

    @property
    def fallbacks(self) -> list[str]:
        """Names of operators that ran on the host, one per call."""
        from torch_neuronx.ops.tracking import get_fallback_ops

        return get_fallback_ops()

    def clear(self) -> None:
        """Forget what ran so far."""
        from torch_neuronx.ops.tracking import clear_op_tracking

        clear_op_tracking()


@pytest.fixture
def op_tracking(neuron_device: "torch.device") -> Iterator[OpTracking]:
    """Tracks operators while the test runs."""
    from torch_neuronx.ops.tracking import stop_op_tracking

    tracking = OpTracking()
    tracking.clear()
    yield tracking
    stop_op_tracking()


@pytest.fixture
def unchanged_configuration() -> Iterator[None]:
    """Fail the test if it leaves torch's configuration or the environment other than it found them."""
    from torch_neuronx.testing.state import capture_state, state_differences

    before = capture_state()
    yield
    changes = state_differences(before, capture_state())
    assert not changes, "the test left changed:\n" + "\n".join(f"  {change}" for change in changes)
