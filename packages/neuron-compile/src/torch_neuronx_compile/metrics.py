"""One record per compiled graph."""

import threading
from dataclasses import dataclass

_lock = threading.Lock()
_records: list["NeuronCompilationMetrics"] = []


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


def record(metrics: NeuronCompilationMetrics) -> None:
    """Add a record."""
    with _lock:
        _records.append(metrics)


def get_dynamo_metrics() -> list[NeuronCompilationMetrics]:
    """Return the records of this process, oldest first; waits for queued work of the device."""
    import torch

    if _records:
        torch.accelerator.synchronize()
    with _lock:
        return list(_records)


def reset_dynamo_metrics() -> None:
    """Forget all records."""
    with _lock:
        _records.clear()
