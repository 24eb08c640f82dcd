"""A graph that was lowered before is not lowered again; another graph is."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from torch_neuronx import installed, plugins
from torch_neuronx.events import CacheLayer, CacheLookedUp, Event
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx_compile import helpers, stores
from torch_neuronx_compile.lowering import hlo_store
from torch_neuronx_compile.lowering.graph_text import UnknownArgumentError, graph_text

from .helpers import compiled

stored = pytest.mark.skipif(
    installed.version("torch-neuronx-cache") is None,
    reason="the store is torch-neuronx-cache's; the rest of this folder shows that compiling works without it",
)


@pytest.fixture
def lookups() -> Iterator[list[bool]]:
    """Whether each look-up of a lowered program hit."""
    seen: list[bool] = []

    class Observer:
        @hookimpl
        def torch_neuronx_observe(self, event: Event) -> None:
            if isinstance(event, CacheLookedUp) and event.layer is CacheLayer.LOWERED:
                seen.append(event.hit)

    plugins.manager().register(Observer(), "lookups")
    yield seen
    plugins.manager().unregister("lookups")


def run_afresh(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.Tensor:
    """Run ``function`` compiled, as the first thing that this process compiles."""
    torch._dynamo.reset()
    stores._open.cache_clear()
    result: torch.Tensor = compiled(function)(*inputs)
    return result


@stored
def test_a_graph_under_another_name_and_line_is_found(lookups: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(4, device="neuron")
    expected = run_afresh(lambda x: x * 2.5 - 1, x)

    def elsewhere(renamed: torch.Tensor) -> torch.Tensor:
        twice = renamed * 2.5
        return twice - 1

    helpers.set_model_name("other")
    monkeypatch.setattr("torch_neuronx_compile.lowering.lower.lower_graph", lambda graph, child: pytest.fail("lowered"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", os.environ["TORCHINDUCTOR_CACHE_DIR"] + "-other")
    assert torch.equal(run_afresh(elsewhere, x), expected)
    assert lookups == [False, True]
    first, second = helpers.get_dynamo_metrics()
    assert first.torch_neuronx_lower_us > 0
    assert second.torch_neuronx_lower_us == 0
    assert first.graph_id == second.graph_id


@stored
def test_other_shapes_dtypes_and_constants_miss(lookups: list[bool]) -> None:
    for factor, x in (
        (2.0, torch.rand(4)),
        (2.5, torch.rand(4)),
        (2.5, torch.rand(5)),
        (2.5, torch.rand(4, dtype=torch.bfloat16)),
    ):
        run_afresh(lambda x, factor=factor: x * factor, x.to("neuron"))
    assert lookups == [False] * 4


@stored
def test_another_version_misses(lookups: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(4, device="neuron")
    run_afresh(lambda x: x - 3, x)
    monkeypatch.setattr(hlo_store, "versions", lambda: {"torch-mlir": "1"})
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", os.environ["TORCHINDUCTOR_CACHE_DIR"] + "-other")
    run_afresh(lambda x: x - 3, x)
    assert lookups == [False, False]


@stored
def test_a_damaged_entry_is_made_again(lookups: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(4, device="neuron")
    expected = run_afresh(lambda x: x * 7, x)
    for path in Path(os.environ["TORCH_NEURONX_HLO_CACHE_DIR"]).rglob("??/*"):
        content = bytearray(path.read_bytes())
        if len(content) > 200:
            content[-50] ^= 1
            path.write_bytes(content)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", os.environ["TORCHINDUCTOR_CACHE_DIR"] + "-other")
    with pytest.warns(UserWarning, match="is damaged"):
        assert torch.equal(run_afresh(lambda x: x * 7, x), expected)
    assert lookups == [False, False]


def test_without_a_store_every_graph_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_open", lambda kind, *settings: None)
    made = [stores.find_or_make("hlo", {}, lambda: b"program", {}) for _ in range(2)]
    assert made == [(b"program", True)] * 2


def traced(function: Callable[..., Any], *inputs: torch.Tensor) -> fx.Graph:
    return torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(*inputs).graph


def test_the_text_has_what_is_computed_and_no_names() -> None:
    x = torch.ones(2, 3)

    def one(first: torch.Tensor) -> Any:
        return torch.ops.aten.add.Scalar(first, 1.0), torch.ops.aten.sum.dim_IntList(first, [0], dtype=torch.float64)

    def other(second: torch.Tensor) -> Any:
        total = torch.ops.aten.add.Scalar(second, 1.0)
        return total, torch.ops.aten.sum.dim_IntList(second, [0], dtype=torch.float64)

    assert graph_text(traced(one, x)) == graph_text(traced(other, x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.ops.aten.add.Scalar(x, 1),
        lambda x: torch.ops.aten.add.Scalar(x, 1.0000000000000002),
        lambda x: torch.ops.aten.add.Scalar(x, -1.0),
        lambda x: torch.ops.aten.sub.Scalar(x, 1.0),
        lambda x: (torch.ops.aten.add.Scalar(x, 1.0), x),
    ],
)
def test_the_text_tells_graphs_apart(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(2, 3)
    base = graph_text(traced(lambda x: torch.ops.aten.add.Scalar(x, 1.0), x))
    assert graph_text(traced(function, x)) != base
    assert graph_text(traced(lambda x: torch.ops.aten.add.Scalar(x, 1.0), x.t())) != base


def test_the_same_text_from_another_order_of_keywords_and_none_for_unknown_arguments() -> None:
    graphs = []
    for names in (("b", "a"), ("a", "b")):
        graph = fx.Graph()
        graph.output(graph.call_function(len, (), dict.fromkeys(names, 1)))
        graphs.append(graph_text(graph))
    assert graphs[0] == graphs[1]
    graph = fx.Graph()
    graph.output(graph.call_function(len, (object(),)))
    with pytest.raises(UnknownArgumentError, match="object"):
        graph_text(graph)
