"""Random operators in graphs: reproducible from the device's generator, the same in forward and backward."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from torch_neuronx_compile import ops

from .helpers import compiled


def _same_seed(function: Callable[[], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(7)
    first = function()
    torch.manual_seed(7)
    return first, function(), function()


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: F.dropout(x * 1.5, 0.5),
        lambda x: F.dropout(F.dropout(x * 1.5, 0.5), 0.3).abs(),
        lambda x: checkpoint(lambda y: F.dropout(y * 1.5, 0.5) * 1.0, x, use_reentrant=False),
        lambda x: checkpoint(lambda y: F.dropout(F.dropout(y, 0.5), 0.3).abs(), x, use_reentrant=False),
    ],
    ids=["once", "twice", "recomputed", "twice, recomputed"],
)
def test_dropout_is_the_same_in_forward_and_backward(forward: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(64, 64, device="neuron", requires_grad=True)
    function = compiled(forward)

    def run() -> Tensor:
        x.grad = None
        output = function(x)
        output.sum().backward()
        assert torch.equal(output != 0, x.grad != 0)
        return torch.stack([output.detach(), x.grad]).cpu()

    first, again, later = _same_seed(run)
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    x = torch.ones(200, 200, device="neuron")
    result = compiled(lambda x: F.dropout(x, 0.3))(x).cpu()
    assert (result == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert result.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]


def test_two_dropouts_draw_apart() -> None:
    one, two = compiled(lambda x: (F.dropout(x, 0.5), F.dropout(x, 0.5)))(torch.ones(64, 64, device="neuron"))
    assert not torch.equal(one, two)


def test_evaluation_and_extremes_draw_nothing() -> None:
    x = torch.randn(4, 4, device="neuron")
    function = compiled(lambda x: (F.dropout(x, 0.5, training=False), F.dropout(x, 0.0), F.dropout(x, 1.0)))
    same, kept, none = function(x)
    assert torch.equal(same, x)
    assert torch.equal(kept, x)
    assert not none.any()


def test_factories_follow_their_distributions() -> None:
    def draw() -> tuple[Tensor, ...]:
        return (
            torch.rand(100, 100, device="neuron"),
            torch.randn(100, 100, device="neuron"),
            torch.randint(-3, 5, (100, 100), device="neuron"),
        )

    function = compiled(draw)
    torch.manual_seed(3)
    first = [tensor.cpu() for tensor in function()]
    torch.manual_seed(3)
    assert all(torch.equal(one, other.cpu()) for one, other in zip(first, function(), strict=True))
    uniform, normal, integers = first
    assert 0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() < 1
    assert normal.mean().item() == pytest.approx(0, abs=0.05)
    assert normal.std().item() == pytest.approx(1, abs=0.05)
    assert normal.isfinite().all()
    assert integers.dtype == torch.int64
    assert integers.unique().tolist() == list(range(-3, 5))


def test_bernoulli_takes_probabilities() -> None:
    p = torch.tensor([0.0, 0.25, 1.0], device="neuron").expand(4000, 3)
    mean = compiled(torch.bernoulli)(p).mean(0).cpu()
    assert mean.tolist() == [0.0, pytest.approx(0.25, abs=0.04), 1.0]


def test_permutations_hold_every_position_once() -> None:
    def draw() -> tuple[Tensor, ...]:
        return tuple(torch.randperm(n, device="neuron", dtype=torch.int32) for n in (0, 1, 500, 500))

    torch.manual_seed(3)
    function = compiled(draw)
    first = [tensor.cpu() for tensor in function()]
    assert [tensor.dtype for tensor in first] == [torch.int32] * 4
    assert all(torch.equal(tensor.sort()[0], torch.arange(len(tensor), dtype=torch.int32)) for tensor in first)
    assert not torch.equal(first[2], first[3])
    assert not torch.equal(first[2].sort()[0], first[2])
    torch.manual_seed(3)
    assert all(torch.equal(one, other.cpu()) for one, other in zip(first, function(), strict=True))


@pytest.mark.parametrize("size", [[1], [3], [4], [5, 7], [2, 3, 4]])
@pytest.mark.parametrize("seed", [0, 5, 2**40 + 3, 2**63 - 1])
def test_eager_mode_and_programs_draw_the_same_numbers(size: list[int], seed: int) -> None:
    """A graph that falls back to eager mode must drop what its compiled other half dropped."""
    ops.define()
    state = torch.tensor(seed)

    def draw(state: Tensor) -> tuple[Tensor, Tensor]:
        operators = torch.ops.neuron_compile
        return operators.uniform(state, size), operators.integers(state, -5, 1000, size)

    for eager, program in zip(draw(state), compiled(draw)(state.to("neuron")), strict=True):
        assert torch.equal(eager, program.cpu())
