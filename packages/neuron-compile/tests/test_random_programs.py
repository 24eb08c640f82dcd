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
    """A view of an argument that is written into and shares its memory with another: AOT Autograd gives up."""
    part = Input((2, 3), torch.float32, Layout.SLICED, False)
    shared = Program(
        (part, dataclasses.replace(part, layout=Layout.SHARED)),
        ("v0.zero_()", "v2 = v0[..., 1:]", "v3 = v1 + 1"),
        ("v2", "v3"),
    )
    torch._dynamo.reset()
    with pytest.raises(AssertionError) as refused:
        disagreement(shared, compiled)
    assert pytorch_refuses(shared, refused.value)
    assert not pytorch_refuses(shared, AssertionError(str(refused.value)))  # the same words, from elsewhere
    alone = dataclasses.replace(shared, inputs=(part, part))
    assert not pytorch_refuses(alone, refused.value)
