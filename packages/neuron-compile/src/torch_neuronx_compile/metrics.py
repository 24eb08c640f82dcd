"""One record per compiled graph, and their table ``graph_stats`` as CSV."""

import csv
import os
import threading
import warnings
from bisect import insort
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from torch import fx

from torch_neuronx import config
from torch_neuronx import metrics as counters
from torch_neuronx.events import CacheLayer
from torch_neuronx.logs import logger
from torch_neuronx_compile.naming import get_rank

TABLE = "graph_stats"
COUNTERS = ("CompilationCache.", "Graphs.")
"""How the names of the counters begin that :func:`reset_dynamo_metrics` clears."""


@dataclass(frozen=True, slots=True)
class NeuronCompilationMetrics:
    """How one graph was compiled."""

    graph_id: str
    """Content key of the compiled program."""
    graph_name: str
    """``{model_name}_{aot_id}_{graph_type}_{nth}``."""
    model_name: str
    has_collectives: bool
    graph_node_count: int
    """Nodes of the FX graph before lowering."""
    timestamp: str
    """UTC, ISO 8601; records sort by it."""
    torch_neuronx_fx_passes_us: int
    torch_neuronx_lower_us: int
    torch_neuronx_compile_us: int
    """0 where the NEFF was found, not made."""
    found_in: CacheLayer | None = None
    """The cache that had the NEFF; ``None``: it was compiled. Not a column of the table."""
    neff_bytes: int = 0
    """Size of the NEFF. Not a column of the table."""


COLUMNS = tuple(field.name for field in fields(NeuronCompilationMetrics))[:9]

_lock = threading.Lock()
_records: list[NeuronCompilationMetrics] = []
_collectors: list[list[NeuronCompilationMetrics]] = []


def record(metrics: NeuronCompilationMetrics) -> None:
    """Add a record, and a row to the table where that is enabled."""
    with _lock:
        for records in (_records, *_collectors):  # graphs that compile at the same time end in any order
            insort(records, metrics, key=lambda found: found.timestamp)
        if TABLE in _tables(config.get(config.ENABLED_METRIC_TABLES)):
            _write_row(metrics)


def get_dynamo_metrics() -> list[NeuronCompilationMetrics]:
    """Return the records of this process, oldest first; waits for queued work of the device first."""
    import torch_neuronx

    if torch_neuronx.device.is_initialized():
        torch_neuronx.synchronize()
    with _lock:
        return list(_records)


def reset_dynamo_metrics() -> None:
    """Forget all records and the counters of compilations and graphs; their names are logged."""
    with _lock:
        _records.clear()
    cleared = counters.clear(*COUNTERS)
    logger("compile").info("Cleared the compilation metrics and the counters: %s.", ", ".join(cleared) or "none")


@contextmanager
def collected() -> Iterator[list[NeuronCompilationMetrics]]:
    """Give a list that every record made meanwhile is added to, oldest first."""
    mine: list[NeuronCompilationMetrics] = []
    with _lock:
        _collectors.append(mine)
    try:
        yield mine
    finally:
        with _lock:
            _collectors[:] = [collector for collector in _collectors if collector is not mine]


_COLLECTIVE_NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "c10d", "_dtensor")
_NOT_COLLECTIVE = ("wait_tensor",)


def has_collectives(graph: fx.Graph) -> bool:
    """Return whether ``graph`` calls a collective: an operator through which ranks exchange data."""
    return any(
        getattr(node.target, "namespace", None) in _COLLECTIVE_NAMESPACES
        and getattr(node.target, "_opname", "") not in _NOT_COLLECTIVE
        for node in graph.nodes
        if node.op == "call_function"
    )


# The table ------------------------------------------------------------------------------------------------------------


class _File:
    path: Path | None = None
    pid = 0


@cache
def _tables(enabled: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [name for name in enabled if name != TABLE]
    if unknown:
        warnings.warn(
            f"{config.ENABLED_METRIC_TABLES.name} asks for {', '.join(unknown)}, which is no table of metrics. Known "
            f"are: {TABLE}.",
            stacklevel=2,
        )
    return enabled


def _write_row(metrics: NeuronCompilationMetrics) -> None:
    """Append a row to this process's file, which the first row makes."""
    try:
        folder = config.get(config.METRICS_DIR)
        path = _File.path
        fresh = path is None or _File.pid != os.getpid() or path.parent != folder
        if path is None or fresh:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{TABLE}_proc_{get_rank()}_{os.getpid()}_{datetime.now(UTC):%Y%m%dT%H%M%S%f}.csv"
        with path.open("x" if fresh else "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow(COLUMNS)
            writer.writerow(getattr(metrics, column) for column in COLUMNS)
        _File.path, _File.pid = path, os.getpid()
    except OSError as error:
        _say_unwritable(str(error))


@cache
def _say_unwritable(error: str) -> None:
    logger("compile").warning(
        "The table %s is not written: %s. Set %s to a directory that can be written.",
        TABLE,
        error,
        config.METRICS_DIR.name,
    )
