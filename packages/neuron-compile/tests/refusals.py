"""Stand-ins for operators without a lowering: which real ones there are changes with every version."""

from collections.abc import Mapping
from typing import Any

import pytest
from torch import fx

from torch_neuronx_compile.lowering import lower
from torch_neuronx_compile.support.table import Support
from torch_neuronx_compile.worker.client import WorkerError


def refuse(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """Refuse to lower graphs that hold ``op``, as torch-mlir refuses what it does not know."""
    original = lower.lower_graph

    def refusing(graph: fx.Graph, *rest: Any, **others: Any) -> Any:
        if any(str(node.target) == op for node in graph.nodes):
            raise WorkerError(f"failed to legalize operation 'torch.{op}'")
        return original(graph, *rest, **others)

    monkeypatch.setattr(lower, "lower_graph", refusing)


def use_table(monkeypatch: pytest.MonkeyPatch, rows: Mapping[str, Support]) -> None:
    """Put ``rows`` in place of the shipped table of what lowers."""
    monkeypatch.setattr("torch_neuronx_compile.support.verdict.shipped", lambda: rows)
