"""What goes into a compiled function and comes out: empty, scalar and shared tensors, no tensors at all."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .helpers import check, compiled


def test_results_need_not_be_tensors() -> None:
    y, nothing, number, names = compiled(lambda x: (x + 1, None, x.shape[0] * 2, {"rows": x.shape}))(
        torch.ones(3, device="neuron")
    )
    assert (y.tolist(), nothing, number, names) == ([2, 2, 2], None, 6, {"rows": torch.Size([3])})


def test_tensors_may_be_empty_or_have_no_dimensions() -> None:
    check(lambda x, y: (x * 2 + y, x.sum() + y, torch.cat([x, x])), torch.ones(0, 3), torch.tensor(2.0))


def test_inputs_may_share_memory() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2

    base = torch.zeros(4, device="neuron")
    assert compiled(function)(base[:3], base[1:]).tolist() == [2, 2, 0]
    assert base.tolist() == [1, 1, 1, 0]


def test_tied_weights_get_the_sum_of_their_gradients() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, rows: Tensor) -> Tensor:
            return self.head(self.embed(rows).sin())

    rows, model = torch.tensor([0, 2, 2]), Tied()
    model(rows).square().sum().backward()
    expected = model.embed.weight.grad
    model.zero_grad()
    model.to("neuron")
    compiled(model)(rows.to("neuron")).square().sum().backward()
    assert model.embed.weight is model.head.weight
    torch.testing.assert_close(model.embed.weight.grad.cpu(), expected)


def test_without_gradients() -> None:
    x = torch.ones(3, device="neuron", requires_grad=True)
    function = compiled(lambda x: x * 2)
    with torch.no_grad():
        assert not function(x).requires_grad
    with torch.inference_mode():
        assert function(x).is_inference()
    assert function(x).requires_grad


def test_checkpointing_recomputes_inside_the_graph() -> None:
    check(lambda x: checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False) * 2, torch.randn(4), grad=True)
