"""Operators that take functions: a NEFF holds none of them, so that each breaks the graph and runs in eager mode."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch.fx.experimental.proxy_tensor import make_fx

from torch_neuronx.errors import NEFFCompilationError
from torch_neuronx.neuron_dynamo_backend.metrics import get_dynamo_metrics
from torch_neuronx_compile.backend import neuron


def choose(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x * x, lambda x: x - 1, (x.sin(),)).cos()


def repeat(x: Tensor) -> Tensor:
    start = torch.zeros((), dtype=torch.int32, device=x.device)
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (start, x.sin()))[1].cos()


def carry(x: Tensor) -> Tensor:
    return scan(lambda carry, row: (carry + row, carry * row), x[0] * 0, x.sin(), dim=0)[1].cos()


def prefix(x: Tensor) -> Tensor:
    return associative_scan(torch.add, x.sin(), dim=0, combine_mode="generic").cos()


def row_by_row(x: Tensor) -> Tensor:
    result: Tensor = map_rows(torch.sin, x + 1)
    return result.cos()


FUNCTIONS = {
    "torch.cond": choose,
    "torch.while_loop": repeat,
    "torch.ops.higher_order.scan": carry,
    "torch.ops.higher_order.map_impl": row_by_row,
}


@pytest.fixture
def x() -> Tensor:
    return torch.linspace(0.1, 2, 12).reshape(4, 3)


@pytest.mark.parametrize("function", FUNCTIONS.values())
def test_the_result_is_that_of_eager_mode(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    compiled = torch.compile(function, backend="neuron")
    for argument in (x, -x):
        torch.testing.assert_close(compiled(argument.to("neuron")).cpu(), function(argument))
    assert len(get_dynamo_metrics()) >= 2, "what stands before and after the call is compiled"


def test_a_scan_that_pytorch_takes_apart_is_compiled(x: Tensor) -> None:
    result = torch.compile(prefix, backend="neuron", fullgraph=True)(x.to("neuron"))
    torch.testing.assert_close(result.cpu(), prefix(x))


@pytest.mark.parametrize("op", FUNCTIONS)
def test_with_fullgraph_the_operator_is_named(op: str, x: Tensor) -> None:
    with pytest.raises(Unsupported, match=f"Op not supported by the Neuron backend\n.*{op} cannot .*a NEFF"):
        torch.compile(FUNCTIONS[op], backend="neuron", fullgraph=True)(x.to("neuron"))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's, of its eager cond
def test_gradients_flow_through_the_branch_that_ran(x: Tensor) -> None:
    here, there = x.clone().requires_grad_(), x.to("neuron").requires_grad_()
    choose(here).sum().backward()
    torch.compile(choose, backend="neuron")(there).sum().backward()
    assert there.grad is not None
    torch.testing.assert_close(there.grad.cpu(), here.grad)


def test_a_constant_chooses_while_dynamo_traces(x: Tensor) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.shape[0] > 2, lambda x: x + 1, lambda x: x - 1, (x,))

    with pytest.warns(UserWarning, match="Pred is a Python constant"):
        result = torch.compile(function, backend="neuron", fullgraph=True)(x.to("neuron"))
    assert torch.equal(result.cpu(), x + 1)


def test_other_backends_are_not_broken(x: Tensor) -> None:
    torch.compile(choose, backend="neuron")(x.to("neuron"))
    torch._dynamo.reset()
    result = torch.compile(choose, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(result, choose(x))


def test_a_graph_made_without_dynamo_is_refused_by_name(x: Tensor) -> None:
    graph = make_fx(lambda x: (choose(x),), tracing_mode="fake")(x.to("neuron"))
    with pytest.raises(NEFFCompilationError, match=r"the operator cond\(.*has no lowering: which of its functions"):
        neuron(graph, [x.to("neuron")])
