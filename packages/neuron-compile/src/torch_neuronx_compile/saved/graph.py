"""The object that PyTorch's caches of traced functions hold for a compiled graph.

PyTorch pickles its whole entry, this object in it, and unpickles it when it is loaded. The object has no other state
than ``data``: the bytes of a :class:`GraphRecord`, which are verified before anything of them is used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from torch_neuronx import config, plugins
from torch_neuronx.compilers import HostDependent
from torch_neuronx.errors import NeuronError
from torch_neuronx.events import CacheLayer, CacheLookedUp
from torch_neuronx_compile import ops
from torch_neuronx_compile._compat import CannotBeCached, OutputCode, pickle_graph, unpickle_graph
from torch_neuronx_compile.compile_only import ModalGraph
from torch_neuronx_compile.compilers.select import Toolchain, toolchain
from torch_neuronx_compile.eager import EagerGraph, GraphWithFallback
from torch_neuronx_compile.explain.capture import captured
from torch_neuronx_compile.loaded import bring, neff_of
from torch_neuronx_compile.lowering.lower import fingerprints
from torch_neuronx_compile.metrics import NeuronCompilationMetrics
from torch_neuronx_compile.naming import GraphNames
from torch_neuronx_compile.pending import Graph, settled
from torch_neuronx_compile.saved.record import GraphRecord, check, read, write


@dataclass
class SavedGraph(OutputCode):
    """A compiled graph with AOT Autograd's calling convention that PyTorch can keep."""

    data: bytes | None = None

    def __post_init__(self) -> None:
        """Start without a graph, as after unpickling."""
        self._boxed_call = True
        self._graph: Graph | None = None

    @classmethod
    def around(cls, graph: Graph) -> "SavedGraph":
        """Return the object for a graph that was just compiled."""
        made = cls()
        made._graph = graph
        return made

    def __call__(self, arguments: Any) -> Any:
        """Run the graph; empties ``arguments``."""
        return self._graph(arguments)  # type: ignore[misc]

    def settle(self) -> None:
        """Wait until the graph is compiled; raises what its compilation raised."""
        if self._graph is not None:
            self._graph = settled(self._graph)

    def prepare_for_serialization(self) -> None:
        """Leave ``data`` alone; PyTorch calls this on a copy. Raises what makes PyTorch leave the entry out."""
        if self.data is None:
            assert self._graph is not None
            try:
                graph = settled(self._graph)
            except NeuronError as error:  # raised where the compilation is waited for
                raise CannotBeCached(f"a graph was not compiled: {error}") from error
            self.data = write(_record(graph))
        self._graph = None

    def post_compile(self, *_: Any) -> None:
        """Load the graph after unpickling.

        While the backend compiles, raises :class:`NeuronError` for a graph that cannot be used, and PyTorch
        compiles anew. Elsewhere nobody would: the graph then raises when it is called.
        """
        if self._graph is not None:
            return
        assert self.data is not None
        try:
            self._graph = _restore(self.data)
        except NeuronError as error:
            if _names.get() is not None:
                raise
            self._graph = Failure(error)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Do nothing: there are no Triton kernels."""


class Failure:
    """In place of a graph that cannot be used: says why when it is called."""

    def __init__(self, error: NeuronError) -> None:
        self._error = error

    def __call__(self, arguments: list[Any]) -> Any:
        """Raise."""
        raise self._error


_names: ContextVar[GraphNames | None] = ContextVar("torch_neuronx_compile_names", default=None)


@contextmanager
def named_by(names: GraphNames) -> Iterator[None]:
    """Name graphs that PyTorch's caches hold as the compilation that finds them would."""
    token = _names.set(names)
    try:
        yield
    finally:
        _names.reset(token)


def _record(graph: Graph) -> GraphRecord:
    eager: bytes | None = None
    compiled: Graph | None = graph
    if isinstance(graph, GraphWithFallback):
        eager, compiled = pickle_graph(graph.eager.module), graph.compiled
    if not isinstance(compiled, ModalGraph):
        raise CannotBeCached(f"{type(compiled).__name__} holds more than one compiled graph, or none")
    lowered, options = compiled.lowered, compiled.options
    tools = toolchain(options)
    neff = neff_of(lowered, tools)
    if neff is None:
        raise CannotBeCached(f"the NEFF of {lowered.unit.name} is not at hand")
    return GraphRecord(
        lowered=lowered,
        neff=neff,
        neff_key=_neff_key(lowered.key, tools),
        target=tools.layout.target.name,
        lowerings=fingerprints(lowered.unit.graph),
        options=options,
        node_count=compiled.draft.graph_node_count,
        has_collectives=compiled.draft.has_collectives,
        eager=eager,
    )


def _restore(data: bytes) -> Graph:
    record = read(data)
    tools = toolchain(record.options)
    check(record, tools.layout.target.name)
    lowered, names = record.lowered, _names.get()
    name = lowered.unit.name if names is None else names.name(lowered.unit.kind)
    lowered = replace(lowered, unit=replace(lowered.unit, name=name))
    captured(None, lowered.unit.kind, name)
    plugins.notify(CacheLookedUp(lowered.key, CacheLayer.TRACED, True, 0.0))
    if record.neff_key == _neff_key(lowered.key, tools) and not config.get(config.NEFF_DISABLE_CACHE):
        bring(lowered, tools, record.neff)
    draft = NeuronCompilationMetrics(
        graph_id=lowered.key,
        graph_name=name,
        model_name=name if names is None else names.model,
        has_collectives=record.has_collectives,
        graph_node_count=record.node_count,
        timestamp=datetime.now(UTC).isoformat(),
        torch_neuronx_fx_passes_us=0,
        torch_neuronx_lower_us=0,
        torch_neuronx_compile_us=0,
    )
    graph = ModalGraph(lowered, record.options, draft)
    if record.eager is None:
        return graph
    ops.define()
    return GraphWithFallback(name, graph, EagerGraph(unpickle_graph(record.eager)))


def _neff_key(program: str, tools: Toolchain) -> tuple[str, ...]:
    host = tools.compiler.host() if isinstance(tools.compiler, HostDependent) else {}
    return (*tools.key(program), *(f"{name}={value}" for name, value in sorted(host.items())))
