"""Optimizers, plain, foreach and fused, take the CPU's steps."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

KINDS: dict[str, dict[str, bool]] = {
    "default": {}, "plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True},
}  # fmt: skip
OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda p, **k: torch.optim.SGD(p, lr=0.1, **k),
    "SGD, momentum": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, **k),
    "AdamW": lambda p, **k: torch.optim.AdamW(p, lr=0.05, **k),
    "AdamW, amsgrad": lambda p, **k: torch.optim.AdamW(p, lr=0.05, amsgrad=True, maximize=True, **k),
    "AdamW, tensor lr": lambda p, **k: torch.optim.AdamW(p, lr=torch.tensor(0.05), **k),
    "Adam": lambda p, **k: torch.optim.Adam(p, lr=0.05, weight_decay=0.01, **k),
    "Adagrad": lambda p, **k: torch.optim.Adagrad(p, lr=0.05, **k),
    "RMSprop": lambda p, **k: torch.optim.RMSprop(p, lr=0.05, momentum=0.5, centered=True, **k),
    "Adafactor": lambda p, **k: torch.optim.Adafactor(p, lr=0.05, **k),
    "Adadelta": lambda p, **k: torch.optim.Adadelta(p, **k),
    "NAdam": lambda p, **k: torch.optim.NAdam(p, lr=0.05, **k),
    "LBFGS": lambda p, **k: torch.optim.LBFGS(p, lr=0.1, max_iter=4, **k),
}
# What torch itself does not offer: a tensor lr with foreach needs capturable.
WITHOUT = {
    "foreach": {"LBFGS", "AdamW, tensor lr"},
    "plain": {"LBFGS"},
    "fused": {"RMSprop", "Adafactor", "Adadelta", "NAdam", "LBFGS"},
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, k) for n in OPTIMIZERS for k in KINDS if n not in WITHOUT.get(k, ())],
)
def test_steps_equal_the_cpu_s(name: str, kind: str) -> None:
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))]
    nets.append(copy.deepcopy(nets[0]).to("neuron"))
    optimizers = [OPTIMIZERS[name](net.parameters(), **KINDS[kind]) for net in nets]
    x, y = torch.randn(16, 5), torch.randn(16, 3)
    for _ in range(4):
        for net, optimizer in zip(nets, optimizers, strict=True):
            device = next(net.parameters()).device

            def closure(net: nn.Module = net, optimizer: Any = optimizer, device: Any = device) -> torch.Tensor:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(net(x.to(device)), y.to(device))
                loss.backward()
                return loss

            optimizer.step(closure)
    for expected, found in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(found.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-6)
    for state in optimizers[1].state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() and key != "step":
                assert value.is_neuron


def test_capturable() -> None:
    parameter = nn.Parameter(torch.ones(3, device="neuron"))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, capturable=True)
    parameter.sum().backward()
    optimizer.step()
    assert optimizer.state[parameter]["step"].is_neuron
    assert parameter.lt(1).all()


def test_schedules_clipping_and_averaging() -> None:
    net = nn.Linear(3, 3).to("neuron")
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5)
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    for _ in range(3):
        net(torch.ones(2, 3, device="neuron")).sum().backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        nn.utils.clip_grad_value_(net.parameters(), 0.05)
        assert norm.is_neuron
        optimizer.step()
        schedule.step()
        average.update_parameters(net)
    assert all(parameter.is_neuron for parameter in average.parameters())
    vector = nn.utils.parameters_to_vector(net.parameters())
    nn.utils.vector_to_parameters(vector * 0, net.parameters())
    assert net.weight.eq(0).all()
