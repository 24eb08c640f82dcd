"""Handlers written in Python: what they are given, what they write, and errors that reach the caller."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_neuronx import plugins
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.lowerings import Lowering

from .helpers import compiled

seen: list[tuple[list[tuple[torch.dtype, tuple[int, ...]]], dict[str, Any]]] = []


class Refusal(LookupError):
    pass


def run(operands: list[Tensor], results: list[Tensor], attributes: dict[str, Any]) -> None:
    seen.append(([(operand.dtype, tuple(operand.shape)) for operand in operands], attributes))
    if attributes["text"] == "refuse":
        raise Refusal("not this one")
    results[0].copy_(operands[0] * attributes["factor"])


class Plugin:
    @hookimpl
    def torch_neuronx_register_lowerings(self) -> list[Lowering]:
        return [Lowering("python_toy::scale.default", "python_toy_scale", handler=lambda: run, fingerprint="1")]


@pytest.fixture(scope="module", autouse=True)
def operator() -> Iterator[None]:
    plugins.manager().register(Plugin(), "python-toy")
    with torch.library._scoped_library("python_toy", "DEF") as definitions:
        definitions.define("scale(Tensor x, Tensor y, float factor, int n, bool b, int[] sizes, str text) -> Tensor")
        definitions.impl("scale", lambda x, *_: x * 0, "CompositeExplicitAutograd")
        torch.library.register_fake("python_toy::scale", lambda x, *_: torch.empty_like(x), lib=definitions)
        yield
    plugins.manager().unregister("python-toy")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int8, torch.bool])
def test_it_sees_operands_and_attributes_and_writes_results(dtype: torch.dtype) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.ops.python_toy.scale(x + 1, y, 2.0, 7, True, [3, 4], "some text") * 3

    x, y = torch.arange(6.0, device="neuron").view(2, 3), torch.zeros(0, 5, device="neuron").to(dtype)
    seen.clear()
    assert compiled(function)(x, y).tolist() == ((x.cpu() + 1) * 6).tolist()
    ((operands, attributes),) = seen
    assert operands == [(torch.float32, (2, 3)), (dtype, (0, 5))]
    assert attributes == {"factor": 2.0, "n": 7, "b": True, "sizes": [3, 4], "text": "some text"}


def test_what_it_raises_reaches_the_caller_and_the_graph_can_be_called_again() -> None:
    function = compiled(lambda x: torch.ops.python_toy.scale(x, x, 1.0, 0, False, [], "refuse"))
    x = torch.ones(3, device="neuron")
    for _ in range(2):
        with pytest.raises(Refusal, match="not this one") as caught:
            function(x)
        assert "inside the program" in caught.value.__notes__[0]


def test_many_calls_of_one_graph_run_each() -> None:
    def function(x: Tensor) -> Tensor:
        parts = [torch.ops.python_toy.scale(x, x, float(i), i, False, [i], "sum") for i in range(20)]
        return torch.stack(parts).sum(0)

    assert compiled(function)(torch.ones(3, device="neuron")).tolist() == [190.0] * 3
