"""Random programs give on the device what they give on the CPU."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

from .random_programs import Input, Layout, Program, disagreement, programs, pytorch_refuses

# A program that differs is shown as it was drawn: a smaller one would be looked for by compiling hundreds.
quick = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as users do: a write of what a mask chooses breaks the graph, for one."""
    return torch.compile(function, backend="neuron")


@quick
@given(programs())
def test_values(program: Program) -> None:
    torch._dynamo.reset()
    assert disagreement(program, compiled) is None


@quick
@given(programs(gradients=True))
def test_gradients(program: Program) -> None:
    torch._dynamo.reset()
    assert disagreement(program, compiled) is None


def test_a_difference_is_found() -> None:
    """The comparison itself: a wrong compiler is caught."""
    program = Program((), ("v0 = torch.ones(3)",), ("v0",))
    right = Program((), ("v0 = torch.ones(3, device='neuron')",), ("v0",))
    wrong = Program((), ("v0 = torch.ones(3, device='neuron') + 0.01",), ("v0",))
    assert disagreement(program, lambda _: right.function()) is None
    assert disagreement(program, lambda _: wrong.function()) is not None


def test_what_pytorch_refuses_too_is_told_apart() -> None:
    """A write into elements that share memory: functionalization refuses it whatever the device."""
    part = Input((4,), torch.float32, Layout.CONTIGUOUS, False)
    overlapping = Program((part,), ("v1 = v0.unfold(-1, 2, 1)", "v1.narrow(0, 0, 1).neg_()"), ("v1",))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as refused:
        disagreement(overlapping, compiled)
    assert pytorch_refuses(overlapping, refused.value)
    assert not pytorch_refuses(overlapping, RuntimeError("another reason"))
    apart = dataclasses.replace(overlapping, statements=("v1 = v0.unfold(-1, 2, 2)", *overlapping.statements[1:]))
    assert not pytorch_refuses(apart, refused.value)
