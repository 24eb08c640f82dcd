"""``torch.compile``'s parameters: every row of the reference table, by its effect on a function for the device."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import FailOnRecompileLimitHit, Unsupported
from torch.fx.experimental.dynamic_spec import STATIC, IntVar, ParamsSpec, ShapeVar, TensorSpec

from torch_neuronx.errors import ConfigurationError
from torch_neuronx_compile import backend, options
from torch_neuronx_compile.errors import StaticShapeError
from torch_neuronx_compile.metrics import get_dynamo_metrics

RULE = r"static shapes.*pad inputs"


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, device="neuron")


def graphs() -> int:
    return len(get_dynamo_metrics())


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.fx.GraphModule]]:
    """Collect the graphs of AOT Autograd that are compiled."""
    modules: list[torch.fx.GraphModule] = []
    original = backend.prepare

    def recorded(module: torch.fx.GraphModule, *rest: Any) -> Any:
        unit = original(module, *rest)
        modules.append(unit.graph)
        return unit

    monkeypatch.setattr(backend, "prepare", recorded)
    return modules


def test_model() -> None:
    module = nn.Linear(3, 2).to("neuron")
    x = ones(4, 3)
    torch.testing.assert_close(torch.compile(module, backend="neuron")(x), module(x))
    assert torch.compile(lambda x: x + 1, backend="neuron")(x).sum().item() == 24

    @torch.compile(backend="neuron")
    def decorated(x: Tensor) -> Tensor:
        return x * 3

    assert decorated(x).sum().item() == 36
    module.compile(backend="neuron")
    module(x)
    assert graphs() == 4


@pytest.mark.parametrize("fullgraph", [False, True])
def test_fullgraph(fullgraph: bool) -> None:
    def function(x: Tensor) -> Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled = torch.compile(function, backend="neuron", fullgraph=fullgraph)
    if fullgraph:
        with pytest.raises(Unsupported):
            compiled(ones(2))
    else:
        assert compiled(ones(2)).tolist() == [4, 4]
        assert graphs() == 2


def test_dynamic_is_left_out(captured: list[Any]) -> None:
    config = dict(torch._dynamo.config.get_config_copy())
    compiled = torch.compile(lambda x: (x * 2).sum(0), backend="neuron", fullgraph=True)
    for rows in (3, 4, 5, 4, 3):
        assert compiled(ones(rows, 2)).tolist() == [2.0 * rows] * 2
    assert graphs() == 3, "each shape is compiled once"
    for graph in captured:
        for node in graph.nodes:
            value = node.meta.get("val")
            assert not isinstance(value, torch.SymInt)
            assert not isinstance(value, Tensor) or all(type(extent) is int for extent in value.shape)
    assert dict(torch._dynamo.config.get_config_copy()) == config


def test_dynamic_is_true() -> None:
    with pytest.raises(StaticShapeError, match=RULE) as caught:
        torch.compile(lambda x: x + 1, backend="neuron", dynamic=True)(ones(2))
    assert isinstance(caught.value, ConfigurationError)


def test_dynamic_is_marked_on_a_tensor() -> None:
    for mark in (torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic):
        torch._dynamo.reset()
        x = ones(4, 2)
        mark(x, 0)
        compiled = torch.compile(lambda x: x + 1, backend="neuron")
        if mark is torch._dynamo.mark_dynamic:
            with pytest.raises(StaticShapeError, match=RULE):
                compiled(x)
        else:
            assert compiled(x).sum().item() == 16


def test_dynamic_is_false() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="neuron", dynamic=False)
    for rows in (2, 3):
        assert compiled(ones(rows)).tolist() == [2] * rows
    assert graphs() == 2


def test_backend() -> None:
    for choice in ("neuron", backend.neuron):
        torch._dynamo.reset()
        assert torch.compile(lambda x: x - 1, backend=choice)(ones(2)).tolist() == [0, 0]
    assert graphs() >= 1


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_mode(mode: str) -> None:
    options.warn_once.cache_clear()
    compiled = torch.compile(lambda x: x + 1, backend="neuron", mode=mode)
    with pytest.warns(UserWarning, match=f"one mode, 'default'; mode='{mode}' has no effect"):
        assert compiled(ones(2)).tolist() == [2, 2]
    assert compiled(ones(3)).tolist() == [2, 2, 2], "a second warning would be an error here"
    torch.compile(lambda x: x + 2, backend="neuron", mode="default")(ones(2))


def test_options() -> None:
    for choice in (None, {}, {"model_name": "parameters"}):
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, backend="neuron", options=choice)(ones(2))
    assert get_dynamo_metrics()[-1].model_name == "parameters"


def test_name() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="neuron", name="my_function")
    assert compiled(ones(2)).tolist() == [2, 2]
    assert [metric.model_name for metric in get_dynamo_metrics()] == ["model_default"]


def test_disable() -> None:
    assert torch.compile(lambda x: x + 1, backend="neuron", disable=True)(ones(2)).tolist() == [2, 2]
    assert graphs() == 0


@pytest.mark.parametrize("fullgraph", [False, True])
def test_recompile_limit(fullgraph: bool) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="neuron", recompile_limit=2, fullgraph=fullgraph)
    for rows in (2, 3):
        compiled(ones(rows))
    if fullgraph:
        with pytest.raises(FailOnRecompileLimitHit):
            compiled(ones(4))
    else:
        assert compiled(ones(4)).tolist() == [2] * 4
    assert graphs() == 2


@pytest.mark.parametrize("isolate", [False, True])
def test_isolate_recompiles(isolate: bool) -> None:
    def function(x: Tensor) -> Tensor:
        return x + 1

    for rows in (2, 3):
        compiled = torch.compile(function, backend="neuron", recompile_limit=1, isolate_recompiles=isolate)
        assert compiled(ones(rows)).tolist() == [2] * rows
    assert graphs() == (2 if isolate else 1), "each call has its own count, or they share one"


def test_shapes_spec() -> None:
    def function(x: Tensor) -> Tensor:
        return x + 1

    static = ParamsSpec({"x": TensorSpec([STATIC, STATIC])})
    compiled = torch.compile(function, backend="neuron", shapes_spec=static)
    assert compiled(ones(4, 2)).sum().item() == 16
    for size in (ShapeVar("rows", max=64), IntVar("rows", min=2)):
        torch._dynamo.reset()
        dynamic = ParamsSpec({"x": TensorSpec([size, STATIC])})
        with pytest.raises(StaticShapeError, match=RULE):
            torch.compile(function, backend="neuron", shapes_spec=dynamic)(ones(4, 2))
