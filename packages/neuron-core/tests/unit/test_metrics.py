"""Counters, fed by the observer hook."""

from collections.abc import Iterator

import pytest

from torch_neuronx import metrics, plugins
from torch_neuronx.events import (
    CacheLayer,
    CacheLookedUp,
    CacheTrouble,
    CacheTroubled,
    CompileFinished,
    CompileStarted,
    Event,
    GraphBroke,
    GraphExecuted,
    OpFellBack,
)

COMPILED = CompileFinished("g", "k", "emulator", "trn2", 0.1, 100)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    before = metrics.is_enabled()
    metrics.clear_all()
    metrics.set_enabled(True)
    yield
    metrics.clear_all()
    metrics.set_enabled(before)


@pytest.mark.parametrize(
    ("event", "counters"),
    [
        (CompileStarted("g", "k", "emulator", "trn2"), {}),
        (COMPILED, {"CompilationCache.TotalCompilations": 1}),
        (
            CompileFinished("g", "k", "emulator", "trn2", 0.1, None, "no"),
            {"CompilationCache.FailedCompilations": 1, "CompilationCache.TotalCompilations": None},
        ),
        (CacheLookedUp("k", CacheLayer.MEMORY, True, 0.0), {"CompilationCache.InMemoryHits": 1}),
        (CacheLookedUp("k", CacheLayer.MEMORY, False, 0.0), {"CompilationCache.InMemoryMisses": 1}),
        (CacheLookedUp("k", CacheLayer.PERSISTENT, True, 0.0), {"CompilationCache.PersistentHits": 1}),
        (CacheLookedUp("k", CacheLayer.PERSISTENT, False, 0.0), {"CompilationCache.PersistentMisses": 1}),
        (CacheLookedUp("k", CacheLayer.LOWERED, True, 0.0), {"CompilationCache.LoweredHits": 1}),
        (CacheLookedUp("k", CacheLayer.LOWERED, False, 0.0), {"CompilationCache.LoweredMisses": 1}),
        (CacheLookedUp("k", CacheLayer.TRACED, True, 0.0), {"CompilationCache.TracedHits": 1}),
        (CacheTroubled("k", CacheTrouble.WAITED), {"CompilationCache.Waited": 1}),
        (CacheTroubled("k", CacheTrouble.CORRUPT), {"CompilationCache.Corrupt": 1}),
        (CacheTroubled("k", CacheTrouble.REFUSED), {"CompilationCache.Refused": 1}),
        (CacheTroubled("k", CacheTrouble.STORE_ERROR), {"CompilationCache.StoreError": 1}),
        (CacheTroubled("k", CacheTrouble.REMOTE_ERROR), {"CompilationCache.RemoteError": 1}),
        (GraphExecuted("g", 0, 0.1), {"Graphs.Executions": 1}),
        (GraphBroke("aten::sort", "too long"), {"Graphs.Breaks": 1}),
        (OpFellBack("aten::complex", "no complex", 3), {"Fallback.Total": 3, "Fallback.aten::complex": 3}),
        (Event(), {}),
    ],
)
def test_events_are_counted(event: Event, counters: dict[str, int | None]) -> None:
    plugins.notify(event)
    for name, value in counters.items():
        assert metrics.get_counter_value(name) == value
    assert bool(metrics.report() != "Nothing was counted.") == bool(counters)


def test_counters_add_up_and_are_reported_by_name() -> None:
    plugins.notify(COMPILED)
    plugins.notify(COMPILED)
    plugins.notify(GraphExecuted("g", 0, 0.1))
    rows = [line.split() for line in metrics.report().splitlines()]
    assert rows == [["CompilationCache.TotalCompilations", "2"], ["Graphs.Executions", "1"]]


def test_clear_all_forgets() -> None:
    plugins.notify(COMPILED)
    metrics.clear_all()
    assert metrics.get_counter_value("CompilationCache.TotalCompilations") is None
    assert metrics.report() == "Nothing was counted."


def test_an_unknown_counter_is_none() -> None:
    assert metrics.get_counter_value("No.Such") is None


def test_set_enabled() -> None:
    metrics.set_enabled(False)
    assert not metrics.is_enabled()
    plugins.notify(COMPILED)
    assert metrics.report() == "Nothing was counted: metrics are off."
    metrics.set_enabled(True)
    plugins.notify(COMPILED)
    assert metrics.get_counter_value("CompilationCache.TotalCompilations") == 1


@pytest.mark.parametrize(("text", "enabled"), [("0", False), ("1", True), (None, True)])
def test_the_variable_says_how_it_starts(monkeypatch: pytest.MonkeyPatch, text: str | None, enabled: bool) -> None:
    monkeypatch.setattr(metrics, "_state", metrics._Counters())
    monkeypatch.delenv("TORCH_NEURONX_METRICS_ENABLED", raising=False)
    if text is not None:
        monkeypatch.setenv("TORCH_NEURONX_METRICS_ENABLED", text)
    assert metrics.is_enabled() is enabled
