"""An index outside of what it indexes is an error where it is one in eager mode, not another row."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from torch_neuronx.compiler import compile_only
from torch_neuronx_compile.errors import IndexBoundsError

TABLE = torch.arange(12.0).reshape(4, 3)


def shifted(table: Tensor, index: Tensor) -> Tensor:
    """As a language model does: the labels are the tokens, one further."""
    return functional.cross_entropy(functional.embedding(index[:-1], table), index[1:].reshape(-1), ignore_index=-1)


CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": lambda table, index: functional.embedding(index, table),
    "embedding of rows": lambda table, index: functional.embedding(index.unsqueeze(0).view(-1), table),
    "cross_entropy": lambda table, index: functional.cross_entropy(table[: len(index)], index, ignore_index=-1),
    "nll_loss": lambda table, index: functional.nll_loss(table[: len(index)], index, ignore_index=-1),
    "labels one further": shifted,
    "getitem": lambda table, index: table[index] + 1,
    "getitem of columns": lambda table, index: table[..., index] + 1,
    "getitem of elements": lambda table, index: table[index, index] + 1,
    "index_select": lambda table, index: table.index_select(1, index) + 1,
    "torch.index_select": lambda table, index: torch.index_select(table, dim=0, index=index) + 1,
    "gather": lambda table, index: table.gather(1, index[:, None]) + 1,
    "torch.gather": lambda table, index: torch.gather(table, 0, index.unsqueeze(1)) + 1,
    "index_add": lambda table, index: table.index_add(0, index, table[: len(index)]),
    "index_copy": lambda table, index: table.index_copy(-2, index, table[: len(index)]),
    "scatter": lambda table, index: table.scatter(1, index[:, None], 7.0) + 1,
    "scatter_add": lambda table, index: torch.scatter_add(table, 0, index[:, None], table) + 1,
}


@pytest.fixture(scope="module")
def compiled() -> dict[str, Callable[..., Tensor]]:
    return {name: torch.compile(call, backend="neuron", fullgraph=True) for name, call in CALLS.items()}


@pytest.mark.parametrize("name", CALLS)
@given(st.lists(st.integers(-5, 5), min_size=3, max_size=3, unique=True))
@settings(max_examples=20, deadline=None)
def test_what_eager_mode_refuses_is_refused_and_the_rest_computed(
    compiled: dict[str, Callable[..., Tensor]], name: str, index: list[int]
) -> None:
    table, indices = TABLE.to("neuron"), torch.tensor(index, device="neuron")
    try:
        expected = CALLS[name](table, indices)
    except (IndexError, RuntimeError):  # which of them depends on the kernel
        with pytest.raises(IndexBoundsError, match="is out of range for"):
            compiled[name](table, indices)
    else:
        torch.testing.assert_close(compiled[name](table, indices).cpu(), expected.cpu())


def test_the_error_is_found_before_the_graph_runs_and_says_where() -> None:
    @torch.compile(backend="neuron")
    def function(table: Tensor, total: Tensor, index: Tensor) -> Tensor:
        total.add_(1)
        return functional.embedding(index, table) + total

    total = torch.zeros((), device="neuron")
    message = (
        r"The index 4 is out of range for torch\.nn\.functional\.embedding \(.*test_index_bounds\.py.*takes 0 to 3"
    )
    with pytest.raises(IndexBoundsError, match=message):
        function(TABLE.to("neuron"), total, torch.tensor([4], device="neuron"))
    assert total.item() == 0


def test_an_index_that_is_written_first_is_left_alone() -> None:
    @torch.compile(backend="neuron", fullgraph=True)
    def function(index: Tensor) -> Tensor:
        index.sub_(10)
        return functional.embedding(index, TABLE.to(index.device)) + 1

    result = function(torch.tensor([11, 12], device="neuron"))
    assert torch.equal(result.cpu(), TABLE[[1, 2]] + 1)


def test_compiling_without_running_looks_at_no_values() -> None:
    with compile_only():
        result = torch.compile(CALLS["embedding"], backend="neuron")(
            TABLE.to("neuron"), torch.tensor([9], device="neuron")
        )
    assert result.shape == (1, 3)
