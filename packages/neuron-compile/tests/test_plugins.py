"""The seams: compilers, decompositions and events through the hooks."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_neuronx import events, installed, plugins
from torch_neuronx import metrics as counters
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx_compile.worker.client import Worker

from .helpers import compiled


class Observer:
    def __init__(self) -> None:
        self.seen: list[events.Event] = []

    @hookimpl
    def torch_neuronx_observe(self, event: events.Event) -> None:
        self.seen.append(event)

    @hookimpl
    def torch_neuronx_register_decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        return {torch.ops.aten.lgamma.default: lambda x: x + 100}


@pytest.fixture
def observer() -> Iterator[Observer]:
    plugin = Observer()
    plugins.manager().register(plugin, "observer")
    yield plugin
    plugins.manager().unregister("observer")


def test_the_emulators_compiler_is_registered() -> None:
    compiler = plugins.manager().compilers()["emulator"]
    assert compiler.runtime == "emulator"
    assert "jaxlib" in compiler.version()


def test_observers_see_a_compilation_and_its_runs(observer: Observer) -> None:
    function = compiled(lambda x: x * 4.5 - 2)
    for _ in range(2):
        function(torch.ones(3, device="neuron"))
    looked_up = [event for event in observer.seen if isinstance(event, events.CacheLookedUp)]
    stored = installed.version("torch-neuronx-cache") is not None
    layers = ["lowered", "memory", "persistent"] if stored else ["memory"]
    assert [(event.layer, event.hit) for event in looked_up] == [(layer, False) for layer in layers]
    assert observer.seen[: len(layers)] == looked_up
    rest = observer.seen[len(layers) :]
    assert [type(event) for event in rest] == [
        events.CompileStarted,
        events.CompileFinished,
        events.GraphExecuted,
        events.GraphExecuted,
    ]
    started, finished, executed, _ = rest
    assert started.compiler == "emulator"
    assert started.key == finished.key == looked_up[layers.index("memory")].key
    assert finished.neff_bytes
    assert finished.error is None
    assert executed.graph == started.graph


def test_runs_are_counted_once_with_and_without_observers() -> None:
    function = compiled(lambda x: x * 4.25)
    for watching in (False, True):
        if watching:
            plugins.manager().register(Observer(), "watching")
        try:
            counters.clear_all()
            for _ in range(3):
                function(torch.ones(3, device="neuron"))
            assert counters.get_counter_value("Graphs.Executions") == 3
        finally:
            if watching:
                plugins.manager().unregister("watching")


def test_a_plugins_decomposition_is_used(observer: Observer) -> None:
    x = torch.ones(3, device="neuron")
    assert torch.equal(compiled(torch.lgamma)(x).cpu(), torch.full((3,), 101.0))


def test_equal_programs_are_equal_bytes_in_another_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from torch_neuronx_compile.lowering import lower

    keys = []
    original = lower.lower

    def recorded(unit: Any, child: Worker | None = None) -> Any:
        fresh = Worker()
        lowered = original(unit, fresh)
        fresh.close()
        keys.append(lowered.key)
        return lowered

    monkeypatch.setattr("torch_neuronx_compile.backend.lower", recorded)

    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x @ x).softmax(-1)

    for place in ("one", "another"):
        monkeypatch.setenv("TORCH_NEURONX_HLO_CACHE_DIR", str(tmp_path / place))
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / f"inductor-{place}"))
        torch._dynamo.reset()
        compiled(function)(torch.ones(4, 4, device="neuron"))
    assert keys[0] == keys[1]
