"""Lists of tensors: every functional operator gives for each tensor what eager mode gives, and optimizers compile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torch_neuronx_compile.decompositions.foreach import DECOMPOSITIONS
from torch_neuronx_compile.metrics import get_dynamo_metrics


def _argument(kind: str, tensors: list[Tensor]) -> Any:
    match kind:
        case "List[Tensor]":
            return [tensor * 0.5 + 0.3 for tensor in tensors]
        case "List[number]":
            return [0.5, 2.0]
        case "number":
            return 2.0
        case "Tensor":
            return torch.tensor(2.0)
    return None


@pytest.mark.parametrize("overload", sorted(DECOMPOSITIONS, key=str), ids=str)
def test_each_tensor_gets_the_ordinary_operator(overload: torch._ops.OpOverload) -> None:
    tensors = [torch.linspace(0.1, 0.9, 4), torch.linspace(0.2, 0.8, 9).reshape(3, 3)]
    if overload._opname == "_foreach_mm":
        tensors = [torch.linspace(0.1, 0.9, 4).reshape(2, 2), tensors[1]]
    arguments = [_argument(str(argument.type), tensors) for argument in overload._schema.arguments]
    if overload._overloadname == "Tensor" and overload._opname in ("_foreach_addcdiv", "_foreach_addcmul"):
        arguments[-1] = torch.tensor([0.5, 2.0])
    required = [argument for argument in overload._schema.arguments if not argument.kwarg_only]
    given = arguments[: len(required)]
    while given[-1] is None:
        given.pop()
    for one, other in zip(DECOMPOSITIONS[overload](*given), overload(*given), strict=True):
        torch.testing.assert_close(one, other)


# Dynamo imports a part of torch that torch calls deprecated when it meets an optimizer.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "optimizer", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad], ids=lambda optimizer: optimizer.__name__
)
def test_the_step_of_an_optimizer_compiles(optimizer: Callable[..., torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    host = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    device = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    device.load_state_dict(host.state_dict())
    device = device.to("neuron")
    steps = [optimizer(model.parameters(), lr=0.1, foreach=True) for model in (host, device)]
    run = torch.compile(lambda: steps[1].step(), backend="neuron")  # the optimizer breaks the graph around its step
    for _ in range(2):
        for one, other in zip(host.parameters(), device.parameters(), strict=True):
            one.grad = torch.linspace(-1, 1, one.numel()).reshape(one.shape)
            other.grad = one.grad.to("neuron")
        steps[0].step()
        run()
    for one, other in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(other.detach().cpu(), one.detach())
    assert get_dynamo_metrics()
