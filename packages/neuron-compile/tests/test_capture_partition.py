"""Backward graphs with calls that do not lower: those run in eager mode, the rest is compiled."""

import logging
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from torch_neuronx import events, plugins
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx_compile.metrics import get_dynamo_metrics

from .helpers import check, compiled
from .refusals import refuse, use_table


class Observer:
    def __init__(self) -> None:
        self.seen: list[events.OpFellBack] = []

    @hookimpl
    def torch_neuronx_observe(self, event: events.Event) -> None:
        if isinstance(event, events.OpFellBack) and event.reason == "has no lowering":
            self.seen.append(event)


@pytest.fixture
def observer() -> Iterator[Observer]:
    plugin = Observer()
    plugins.manager().register(plugin, "partitions")
    yield plugin
    plugins.manager().unregister("partitions")


def sampled(image: Tensor, grid: Tensor) -> Tensor:
    """Return something whose gradient, and nothing else, calls ``sinh``."""
    return (image.sin().cosh() * grid.cos()).exp()


IMAGE, GRID = torch.linspace(-1, 1, 12), torch.linspace(-1, 1, 12)


@pytest.fixture(autouse=True)
def lowers_forward_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the forward call pass, whatever the table knows of its gradient, and refuse the backward one."""
    use_table(monkeypatch, {})
    refuse(monkeypatch, "aten.sinh.default")


def test_the_gradients_are_right_also_in_one_graph() -> None:
    check(sampled, IMAGE, GRID, grad=True)


def test_it_is_told_and_counted(observer: Observer, caplog: pytest.LogCaptureFixture) -> None:
    image, grid = (tensor.to("neuron").requires_grad_() for tensor in (IMAGE, GRID))
    function = compiled(sampled)
    with caplog.at_level(logging.WARNING, "torch_neuronx.compile"):
        for _ in range(2):
            function(image, grid).sum().backward()
    assert [event.op for event in observer.seen] == ["aten::sinh"] * 2
    told = [record.getMessage() for record in caplog.records if record.name == "torch_neuronx.compile"]
    assert len(told) == 1
    assert "sinh" in told[0]
    assert "test_capture_partition.py" in told[0]
    parts = [metric.graph_name for metric in get_dynamo_metrics() if "_backward_" in metric.graph_name]
    assert [name.rpartition("_part_")[2] for name in parts] == ["0", "2"]
