"""`torch.utils.checkpoint` recomputes what was computed, random numbers and autocast included."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

REENTRANT = pytest.mark.parametrize("reentrant", [False, True])


def block() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.GELU(), nn.Linear(6, 6), nn.Dropout(0.3)).to("neuron:1")


def gradients(run: object) -> list[torch.Tensor]:
    net = block()
    x = torch.ones(4, 6, device="neuron:1", requires_grad=True)
    torch.manual_seed(7)
    out = run(net, x)  # type: ignore[operator]
    torch.rand(3, device="neuron:1")  # the generator moves on before the backward pass
    out.float().square().sum().backward()
    return [out, x.grad, *(parameter.grad for parameter in net.parameters())]


@REENTRANT
def test_dropout_is_recomputed_with_the_same_mask(reentrant: bool) -> None:
    plain = gradients(lambda net, x: net(x))
    for again in (
        gradients(lambda net, x: checkpoint(net, x, use_reentrant=reentrant)),
        gradients(lambda net, x: checkpoint_sequential(net, 2, x, use_reentrant=reentrant)),
    ):
        assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@REENTRANT
def test_recomputing_leaves_the_generator_where_it_was(reentrant: bool) -> None:
    net, x = block(), torch.ones(4, 6, device="neuron:1", requires_grad=True)
    torch.manual_seed(7)
    out = checkpoint(net, x, use_reentrant=reentrant)
    state = torch.neuron.get_rng_state(1)
    out.sum().backward()
    assert torch.equal(torch.neuron.get_rng_state(1), state)


@REENTRANT
def test_autocast_is_recomputed(reentrant: bool) -> None:
    def run(net: nn.Module, x: torch.Tensor, wrap: bool) -> torch.Tensor:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            return checkpoint(net, x, use_reentrant=reentrant) if wrap else net(x)

    plain, again = (gradients(lambda net, x, wrap=wrap: run(net, x, wrap)) for wrap in (False, True))
    assert plain[0].dtype == torch.bfloat16
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_it_saves_memory() -> None:
    def peak(wrap: bool) -> int:
        net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Tanh()) for _ in range(8)]).to("neuron:2")
        x = torch.randn(2048, 64, device="neuron:2", requires_grad=True)
        torch.neuron.reset_peak_memory_stats(2)
        out = checkpoint_sequential(net, 8, x, use_reentrant=False) if wrap else net(x)
        out.sum().backward()
        return torch.neuron.max_memory_allocated(2)

    assert peak(True) < 0.7 * peak(False)


def test_saved_tensors_can_go_to_pinned_memory() -> None:
    x = torch.randn(50, device="neuron", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x.sin() * x).sum()
    y.backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, (x.cos() * x + x.sin()).detach())
