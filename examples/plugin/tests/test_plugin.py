"""The plugin in a manager of its own, installed or not."""

from collections.abc import Iterator

import pytest
from neuron_lab import plugin

from torch_neuronx.events import OpFellBack
from torch_neuronx.plugins import PluginManager
from torch_neuronx.targets import TRN2


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginManager]:
    monkeypatch.setattr(plugin.report, "write", lambda: None)
    manager = PluginManager([])
    manager.register(plugin, "lab")
    yield manager
    plugin.report.calls.clear()


def test_the_target_has_half_the_memory(manager: PluginManager) -> None:
    assert manager.targets()["trn2-half"].hbm_per_chip * 2 == TRN2.hbm_per_chip


def test_fallbacks_are_reported(manager: PluginManager) -> None:
    manager.notify(OpFellBack("aten::complex", "no complex", calls=2))
    manager.notify(OpFellBack("aten::angle", "no complex"))
    assert plugin.report.lines() == [
        "neuron-lab: aten::complex ran on the CPU, 2 calls",
        "neuron-lab: aten::angle ran on the CPU, 1 calls",
    ]
