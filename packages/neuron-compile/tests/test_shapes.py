"""Shapes are static: a new one compiles again, dynamic ones are refused."""

import pytest
import torch

from torch_neuronx.errors import ConfigurationError
from torch_neuronx_compile.metrics import get_dynamo_metrics

from .helpers import compiled


def test_each_shape_compiles_once() -> None:
    function = compiled(lambda x: (x * 2).sum(0) + x.shape[0])
    for rows in (3, 4, 5, 4, 3):
        result = function(torch.ones(rows, 2, device="neuron"))
        assert torch.equal(result.cpu(), torch.full((2,), 3.0 * rows))
    assert len(get_dynamo_metrics()) == 3
    assert len({metric.graph_id for metric in get_dynamo_metrics()}) == 3


def test_each_integer_compiles_once() -> None:
    function = compiled(lambda x, n: x * n)
    for n in (2, 3, 4, 3, 2):
        assert torch.equal(function(torch.ones(2, device="neuron"), n).cpu(), torch.full((2,), float(n)))
    assert len(get_dynamo_metrics()) == 3


def test_a_float_that_varies_becomes_an_input() -> None:
    function = compiled(lambda x, n: x * n)
    for n in (0.5, 1.5, 2.5, 1.5, 0.5):
        assert torch.equal(function(torch.ones(2, device="neuron"), n).cpu(), torch.full((2,), n))
    assert len(get_dynamo_metrics()) == 2


def test_dynamic_shapes_are_refused() -> None:
    function = torch.compile(lambda x: x + 1, backend="neuron", dynamic=True)
    with pytest.raises(ConfigurationError, match=r"static shapes.*pad inputs"):
        function(torch.ones(2, device="neuron"))


def test_dynamic_false_is_accepted() -> None:
    function = torch.compile(lambda x: x + 1, backend="neuron", dynamic=False)
    assert torch.equal(function(torch.ones(2, device="neuron")).cpu(), torch.full((2,), 2.0))
