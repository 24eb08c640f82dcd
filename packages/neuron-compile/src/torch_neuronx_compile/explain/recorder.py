"""Collects what an explanation is made of, while a program runs."""

import platform
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from torch import fx

from torch_neuronx import installed, plugins
from torch_neuronx import metrics as counters
from torch_neuronx.events import (
    CacheLayer,
    CacheLookedUp,
    CompileFinished,
    Event,
    GraphBroke,
    GraphExecuted,
    GraphFellBack,
    OpFellBack,
)
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.runtimes.select import select_runtime
from torch_neuronx_compile import metrics
from torch_neuronx_compile.explain._compat import frame_id
from torch_neuronx_compile.explain.capture import current, listening
from torch_neuronx_compile.explain.dynamo import DynamoTrace, traced
from torch_neuronx_compile.explain.report import Break, Explanation, Fallback, Graph, Lookup, Stage
from torch_neuronx_compile.explain.reproduction import reproduction
from torch_neuronx_compile.metrics import NeuronCompilationMetrics
from torch_neuronx_compile.unit import GraphKind

_FOUND = {
    CacheLayer.MEMORY: "found in memory",
    CacheLayer.PERSISTENT: "found in the persistent cache",
    CacheLayer.TRACED: "found in PyTorch's cache of traced functions",
}


@dataclass
class _Captured:
    """One graph while the program runs."""

    kind: str
    frame: str
    nodes: int = 0
    operators: dict[str, int] = field(default_factory=dict)
    code: str = ""
    reproduction: str = ""
    lookups: list[CacheLookedUp] = field(default_factory=list)
    compiled: CompileFinished | None = None
    fell_back: GraphFellBack | None = None


class Recorder:
    """Everything that was seen so far. Receives events as an observer of the project's hooks."""

    def __init__(self, trace: DynamoTrace, records: list[NeuronCompilationMetrics]) -> None:
        self._trace = trace
        self._records = records
        self._lock = threading.Lock()
        self._graphs: dict[str, _Captured] = {}
        self._runs: dict[str, list[float]] = {}
        """Seconds of each run, by graph."""
        self._fallbacks: Counter[tuple[str, str]] = Counter()
        self._breaks: list[GraphBroke] = []

    def captured(self, module: fx.GraphModule | None, kind: GraphKind, name: str) -> None:
        """Take note of a graph that is about to be compiled."""
        graph = _Captured(str(kind), frame_id())
        if module is not None:
            called = Counter(str(node.target) for node in module.graph.nodes if node.op == "call_function")
            graph.nodes = len(module.graph.nodes)
            graph.operators = dict(called.most_common())
            graph.code = module.print_readable(print_output=False)
            graph.reproduction = reproduction(module, kind, name)
        with self._lock:
            self._graphs[name] = graph

    @hookimpl
    def torch_neuronx_observe(self, event: Event) -> None:
        """Receive one event."""
        with self._lock:
            match event:
                case CacheLookedUp():
                    graph = self._graphs.get(current.get() or "")
                    if graph is not None:
                        graph.lookups.append(event)
                case CompileFinished(graph=name) if name in self._graphs:
                    self._graphs[name].compiled = event
                case GraphExecuted(graph=name, seconds=seconds):
                    self._runs.setdefault(name, []).append(seconds)
                case GraphFellBack(graph=name) if name in self._graphs:
                    self._graphs[name].fell_back = event
                case OpFellBack(op=op, reason=reason, calls=calls):
                    self._fallbacks[op, reason] += calls
                case GraphBroke():
                    self._breaks.append(event)

    def explanation(self, subject: str, error: BaseException | None = None) -> Explanation:
        """Return what was seen, as the explanation of ``subject``, which ended with ``error`` if one is given."""
        counters.report()  # parts that count by themselves send what is outstanding
        metrics.get_dynamo_metrics()  # waits for queued work
        records = list(self._records)
        frames = self._trace.frames()
        with self._lock:
            failures = {frame.id: frame.error for frame in frames}
            graphs = tuple(
                _graph(
                    name,
                    captured,
                    [record for record in records if record.graph_name == name],
                    self._runs.get(name, []),
                    failures.get(captured.frame, ""),
                )
                for name, captured in self._graphs.items()
            )
            fallbacks = tuple(Fallback(op, reason, calls) for (op, reason), calls in self._fallbacks.most_common())
            breaks = _merged(self._trace, self._breaks)
            in_eager_mode = tuple(
                Fallback(name, captured.fell_back.reason, 1)
                for name, captured in self._graphs.items()
                if captured.fell_back is not None
            )
        return Explanation(
            subject=subject,
            frames=frames,
            graphs=graphs,
            breaks=breaks,
            fallbacks=fallbacks + in_eager_mode,
            seconds=self._seconds(graphs),
            error="" if error is None else f"{type(error).__name__}: {error}",
            environment=_environment(),
        )

    def _seconds(self, graphs: tuple[Graph, ...]) -> dict[Stage, float]:
        seconds = {stage: sum(graph.seconds.get(stage, 0.0) for graph in graphs) for stage in Stage}
        own = sum(seconds[stage] for stage in (Stage.PASSES, Stage.LOWERING, Stage.COMPILE))
        seconds[Stage.DYNAMO] = max(0.0, self._trace.tracing_seconds())
        seconds[Stage.AOT] = max(0.0, self._trace.backend_seconds() - own)
        return seconds


@contextmanager
def recording() -> Iterator[Recorder]:
    """Give a recorder of what is compiled meanwhile, in all threads."""
    counters.report()  # what parts have counted before is not this program's
    with traced() as trace, metrics.collected() as records:
        recorder = Recorder(trace, records)
        name = f"explanation-{id(recorder)}"
        plugins.manager().register(recorder, name)
        try:
            with listening(recorder.captured):
                yield recorder
        finally:
            plugins.manager().unregister(name)


def _graph(
    name: str, captured: _Captured, records: list[NeuronCompilationMetrics], runs: list[float], failure: str
) -> Graph:
    found_in = records[-1].found_in if records else None
    if not records:
        outcome = "not compiled" if failure or captured.fell_back else "given up, and its frame traced again"
    elif found_in is None:
        outcome = "compiled"
    else:
        outcome = _FOUND.get(found_in, f"found in the {found_in} cache")
    seconds = {
        Stage.PASSES: sum(record.torch_neuronx_fx_passes_us for record in records) / 1e6,
        Stage.LOWERING: sum(record.torch_neuronx_lower_us for record in records) / 1e6,
        Stage.COMPILE: sum(record.torch_neuronx_compile_us for record in records) / 1e6,
        Stage.RUN: sum(runs),
    }
    said = (captured.fell_back and captured.fell_back.reason) or (captured.compiled and captured.compiled.error)
    return Graph(
        name=name,
        kind=captured.kind,
        frame=captured.frame,
        nodes=captured.nodes or (records[-1].graph_node_count if records else 0),
        operators=captured.operators,
        key=records[-1].graph_id if records else captured.compiled.key if captured.compiled else "",
        outcome=outcome,
        lookups=tuple(Lookup(str(lookup.layer), lookup.hit, lookup.seconds) for lookup in captured.lookups),
        seconds=seconds,
        runs=len(runs),
        error=said or ("" if records else failure),
        code=captured.code,
        reproduction=captured.reproduction,
    )


def _merged(trace: DynamoTrace, told: list[GraphBroke]) -> tuple[Break, ...]:
    """Put what the backend knows of a break, its operator, to what Dynamo says of the same place."""
    by_place = {trace.places.get(event.location, event.location): event for event in told}
    merged = [
        replace(found, operator=by_place[found.location].op)
        if not found.operator and found.location in by_place
        else found
        for found in trace.breaks
    ]
    places = {found.location for found in trace.breaks}
    merged.extend(
        Break("", place, event.reason, "", (), event.op, "") for place, event in by_place.items() if place not in places
    )
    return tuple(merged)


def _environment() -> dict[str, str]:
    names = ("torch", "torch-neuronx", "torch-neuronx-compile", "torch-mlir", "jaxlib")
    versions = {name: installed.version(name) or "not installed" for name in names}
    runtime = select_runtime()
    return {
        "python": platform.python_version(),
        **versions,
        "runtime": runtime.name,
        "target": runtime.layout().target.name,
    }
