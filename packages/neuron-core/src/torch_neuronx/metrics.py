"""Counters of what the project did in this process.

They are fed by the observer hook, like any third party's. Names in use:

- ``CompilationCache.TotalCompilations``, ``CompilationCache.FailedCompilations``: runs of a compiler
- ``CompilationCache.InMemoryHits``, ``CompilationCache.PersistentHits``: look-ups that found their graph
- ``CompilationCache.InMemoryMisses``, ``CompilationCache.PersistentMisses``: those that did not
- ``CompilationCache.LoweredHits``, ``CompilationCache.LoweredMisses``: look-ups of lowered programs
- ``CompilationCache.TracedHits``: graphs that came with a function that PyTorch had cached
- ``CompilationCache.Waited``, ``.Corrupt``, ``.Refused``, ``.StoreError``, ``.RemoteError``: look-ups
  that met an obstacle
- ``Graphs.Executions``, ``Graphs.Breaks``, ``Graphs.Fallbacks``: graphs that run in eager mode after a failure
- ``Kernels.Simulated``, ``Kernels.Simulated.<kernel>``: runs of NKI kernels in the simulator; ``Kernels.Replaced``,
  ``Kernels.Replaced.<kernel>``: those by an equivalent function of torch
- ``Fallback.Total``, ``Fallback.<operator>``: calls that ran on the CPU, ``Fallback.aten::complex``
"""

import threading
from collections import Counter
from collections.abc import Callable

from torch_neuronx import config
from torch_neuronx.events import (
    CacheLayer,
    CacheLookedUp,
    CacheTroubled,
    CompileFinished,
    Event,
    GraphBroke,
    GraphExecuted,
    GraphFellBack,
    KernelExecuted,
    OpFellBack,
)

_LAYERS = {
    CacheLayer.MEMORY: "InMemory",
    CacheLayer.PERSISTENT: "Persistent",
    CacheLayer.LOWERED: "Lowered",
    CacheLayer.TRACED: "Traced",
}


class _Counters:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.enabled: bool | None = None
        """``None``: as ``TORCH_NEURONX_METRICS_ENABLED`` says."""
        self.sources: list[Callable[[], None]] = []
        """Called before a counter is read: parts that count by themselves report what is new."""


_state = _Counters()


def add_source(source: Callable[[], None]) -> None:
    """Have ``source`` send its outstanding events before a counter is read; adding it twice counts once."""
    if source not in _state.sources:
        _state.sources.append(source)


def _collect() -> None:
    for source in _state.sources:
        source()


def report() -> str:
    """Return every counter that is not zero, one a line, sorted by name."""
    _collect()
    with _state.lock:
        rows = sorted(_state.counts.items())
    if not rows:
        return "Nothing was counted." if is_enabled() else "Nothing was counted: metrics are off."
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {number}" for name, number in rows)


def get_counter_value(name: str) -> int | None:
    """Return the counter called ``name``, or ``None`` if nothing was counted under it."""
    _collect()
    with _state.lock:
        return _state.counts.get(name)


def clear_all() -> None:
    """Forget every counter."""
    _collect()
    with _state.lock:
        _state.counts.clear()


def clear(*prefixes: str) -> list[str]:
    """Forget the counters whose names begin with one of ``prefixes``, and return their names, sorted."""
    _collect()
    with _state.lock:
        names = sorted(name for name in _state.counts if name.startswith(prefixes))
        for name in names:
            del _state.counts[name]
    return names


def set_enabled(enabled: bool) -> None:
    """Start or stop counting in this process; what was counted stays."""
    _state.enabled = enabled


def is_enabled() -> bool:
    """Return whether events are counted, by default as ``TORCH_NEURONX_METRICS_ENABLED`` says."""
    if _state.enabled is None:
        _state.enabled = config.get(config.METRICS_ENABLED)
    return _state.enabled


def count(event: Event) -> None:
    """Count one event, if counting is on; the core's plugin receives the events and calls this."""
    if not is_enabled():
        return
    increments = _increments(event)
    with _state.lock:
        for name, increment in increments.items():  # Counter.update costs several times as much for one entry
            _state.counts[name] += increment


def count_execution() -> None:
    """Count one :class:`GraphExecuted` that nobody else wants to see, without making it."""
    if is_enabled():
        with _state.lock:
            _state.counts["Graphs.Executions"] += 1


def _increments(event: Event) -> dict[str, int]:
    match event:
        case GraphExecuted():  # first, because it comes most often
            return {"Graphs.Executions": 1}
        case CompileFinished(error=None):
            return {"CompilationCache.TotalCompilations": 1}
        case CompileFinished():
            return {"CompilationCache.FailedCompilations": 1}
        case CacheLookedUp(layer=layer, hit=hit):
            return {f"CompilationCache.{_LAYERS[layer]}{'Hits' if hit else 'Misses'}": 1}
        case CacheTroubled(trouble=trouble):
            return {f"CompilationCache.{trouble.title().replace(' ', '')}": 1}
        case GraphBroke():
            return {"Graphs.Breaks": 1}
        case GraphFellBack():
            return {"Graphs.Fallbacks": 1}
        case KernelExecuted(kernel=kernel, simulated=simulated):
            how = "Kernels.Simulated" if simulated else "Kernels.Replaced"
            return {how: 1, f"{how}.{kernel}": 1}
        case OpFellBack(op=op, calls=calls):
            return {"Fallback.Total": calls, f"Fallback.{op}": calls}
    return {}
