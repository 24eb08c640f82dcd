"""One record per graph, with the documented fields and names."""

import csv
import dataclasses
import logging
import os
from datetime import datetime
from pathlib import Path

import pytest
import torch
from torch import fx

from torch_neuronx import metrics as counters
from torch_neuronx.events import CacheLayer
from torch_neuronx_compile import helpers, metrics

from .helpers import compiled


def test_a_training_step_records_forward_and_backward() -> None:
    helpers.set_model_name("mlp")
    x = torch.randn(4, 4, device="neuron", requires_grad=True)
    compiled(lambda x: x.sin().sum())(x).backward()
    forward, backward = helpers.get_dynamo_metrics()
    assert [field.name for field in dataclasses.fields(forward)][:9] == [
        "graph_id",
        "graph_name",
        "model_name",
        "has_collectives",
        "graph_node_count",
        "timestamp",
        "torch_neuronx_fx_passes_us",
        "torch_neuronx_lower_us",
        "torch_neuronx_compile_us",
    ]
    prefix = forward.graph_name.removesuffix("_forward_0")
    assert prefix.startswith("mlp_")
    assert prefix.removeprefix("mlp_").isdigit()
    assert backward.graph_name == f"{prefix}_backward_0"
    for metric in (forward, backward):
        assert metric.model_name == "mlp"
        assert not metric.has_collectives
        assert metric.graph_node_count >= 3
        assert datetime.fromisoformat(metric.timestamp).tzinfo is not None
        assert metric.torch_neuronx_fx_passes_us > 0
        assert metric.torch_neuronx_lower_us > 0
    assert forward.timestamp < backward.timestamp
    assert forward.graph_id != backward.graph_id


def test_equal_graphs_share_an_id_and_compile_once() -> None:
    for _ in range(2):
        torch._dynamo.reset()
        compiled(lambda x: x * 3.25 - 11)(torch.ones(5, device="neuron"))
    first, second = helpers.get_dynamo_metrics()
    assert first.graph_id == second.graph_id
    assert first.graph_name != second.graph_name
    assert first.torch_neuronx_compile_us > 0
    assert first.found_in is None
    assert second.torch_neuronx_compile_us == 0
    assert second.found_in is CacheLayer.MEMORY
    assert first.neff_bytes == second.neff_bytes > 0


def test_reset_forgets_records_and_counters_and_names_them(caplog: pytest.LogCaptureFixture) -> None:
    compiled(lambda x: x * 7.125)(torch.ones(2, device="neuron"))
    assert helpers.get_dynamo_metrics()
    assert counters.get_counter_value("CompilationCache.TotalCompilations")
    with caplog.at_level(logging.INFO, "torch_neuronx.compile"):
        helpers.reset_dynamo_metrics()
    assert helpers.get_dynamo_metrics() == []
    assert counters.get_counter_value("CompilationCache.TotalCompilations") is None
    assert counters.get_counter_value("Graphs.Executions") is None
    assert "CompilationCache.TotalCompilations" in caplog.text
    assert "Graphs.Executions" in caplog.text


def test_reading_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compilation that is recorded only when the device is waited for is among the records."""
    compiled(lambda x: x + 1)(torch.ones(2, device="neuron"))
    (metric,) = helpers.get_dynamo_metrics()
    late = dataclasses.replace(metric, graph_name="late")
    monkeypatch.setattr("torch_neuronx.device.synchronize", lambda *_: metrics.record(late))
    assert [found.graph_name for found in helpers.get_dynamo_metrics()] == [metric.graph_name, "late"]


def test_collectives_are_found_in_the_graph() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    functional = torch.ops._c10d_functional
    graph.call_function(functional.wait_tensor.default, (x,))
    assert not metrics.has_collectives(graph)
    graph.call_function(functional.all_reduce.default, (x, "sum", "0"))
    assert metrics.has_collectives(graph)


def _tables(folder: Path) -> list[list[list[str]]]:
    found = []
    for path in sorted(folder.iterdir()):
        assert path.name.startswith(f"graph_stats_proc_{helpers.get_rank()}_{os.getpid()}_")
        with path.open(newline="") as file:
            found.append(list(csv.reader(file)))
    return found


def test_the_table_grows_as_graphs_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    monkeypatch.setenv("TORCH_NEURONX_METRICS_DIR", str(folder))
    compiled(lambda x: x + 0)(torch.ones(2, device="neuron"))
    assert not folder.exists()
    monkeypatch.setenv("TORCH_NEURONX_ENABLED_METRIC_TABLES", "graph_stats")
    for i in (1, 2):
        torch._dynamo.reset()
        compiled(lambda x, i=i: x + i)(torch.ones(2, device="neuron"))
        (table,) = _tables(folder)
        assert table[0] == list(metrics.COLUMNS)
        assert len(table[0]) == 9
        records = helpers.get_dynamo_metrics()[1:]
        assert table[1:] == [[str(getattr(metric, name)) for name in table[0]] for metric in records]
        assert len(records) == i


def test_an_unknown_table_warns_once_with_the_known_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    metrics._tables.cache_clear()
    monkeypatch.setenv("TORCH_NEURONX_METRICS_DIR", str(tmp_path))
    monkeypatch.setenv("TORCH_NEURONX_ENABLED_METRIC_TABLES", "graph_statistics")
    with pytest.warns(UserWarning, match="asks for graph_statistics, which is no table.*Known are: graph_stats"):
        compiled(lambda x: x + 3)(torch.ones(2, device="neuron"))
    torch._dynamo.reset()
    compiled(lambda x: x + 4)(torch.ones(2, device="neuron"))
    assert not list(tmp_path.glob("graph_stat*"))


def test_a_table_that_cannot_be_written_warns_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCH_NEURONX_METRICS_DIR", str(tmp_path / "file" / "folder"))
    monkeypatch.setenv("TORCH_NEURONX_ENABLED_METRIC_TABLES", "graph_stats")
    for i in (5, 6):
        torch._dynamo.reset()
        assert compiled(lambda x, i=i: x + i)(torch.ones(2, device="neuron"))[0].item() == i + 1
    assert caplog.text.count("graph_stats is not written") == 1
    assert "TORCH_NEURONX_METRICS_DIR" in caplog.text
    assert len(helpers.get_dynamo_metrics()) == 2


def test_the_model_name_has_a_default_and_names_files() -> None:
    assert helpers.get_model_name() == "model_default"
    helpers.set_model_name("gpt")
    assert helpers.get_model_name() == "gpt"
    for wrong in ("", "a/b"):
        with pytest.raises(ValueError, match="model name"):
            helpers.set_model_name(wrong)


def test_the_rank_is_the_device_without_a_process_group() -> None:
    assert helpers.get_rank() == torch.accelerator.current_device_index()
