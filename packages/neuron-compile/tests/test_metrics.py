"""One record per graph, with the documented fields and names."""

import dataclasses
from datetime import datetime

import pytest
import torch

from torch_neuronx_compile import helpers

from .helpers import compiled


def test_a_training_step_records_forward_and_backward() -> None:
    helpers.set_model_name("mlp")
    x = torch.randn(4, 4, device="neuron", requires_grad=True)
    compiled(lambda x: x.sin().sum())(x).backward()
    forward, backward = helpers.get_dynamo_metrics()
    assert [field.name for field in dataclasses.fields(forward)] == [
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
    assert second.torch_neuronx_compile_us == 0


def test_reset_forgets() -> None:
    compiled(lambda x: x + 1)(torch.ones(2, device="neuron"))
    assert helpers.get_dynamo_metrics()
    helpers.reset_dynamo_metrics()
    assert helpers.get_dynamo_metrics() == []


def test_the_model_name_has_a_default_and_names_files() -> None:
    assert helpers.get_model_name() == "model_default"
    helpers.set_model_name("gpt")
    assert helpers.get_model_name() == "gpt"
    for wrong in ("", "a/b"):
        with pytest.raises(ValueError, match="model name"):
            helpers.set_model_name(wrong)


def test_the_rank_is_the_device_without_a_process_group() -> None:
    assert helpers.get_rank() == torch.accelerator.current_device_index()
