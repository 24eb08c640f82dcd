"""Operators that others define: found, differentiated, and refused with a clear word where they are not."""

from collections.abc import Iterator

import pytest
import torch


def twice(x: torch.Tensor) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd():  # as a kernel in C++ is called
        return x + x


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("neuron_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.define("only_cpu(Tensor x) -> Tensor")
        library.define("nowhere(Tensor x) -> Tensor")
        library.define("composite(Tensor x) -> Tensor")
        library.impl("twice", twice, "PrivateUse1")
        library.impl("only_cpu", lambda x: x * 3, "CPU")
        library.impl("composite", lambda x: x.sin() + 1, "CompositeImplicitAutograd")
        yield library


@torch.library.custom_op("neuron_test::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@scaled.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


scaled.register_autograd(
    lambda ctx, grad: (grad * ctx.factor, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)


@torch.library.custom_op("neuron_test::fill", mutates_args={"x"})
def fill(x: torch.Tensor, value: float) -> None:
    x.fill_(value)


# "test_autograd_registration" knows torch's own devices only.
CHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")


def test_an_operator_with_autograd() -> None:
    x = torch.ones(3, device="neuron", requires_grad=True)
    y = scaled(x, 4.0)
    assert y.is_neuron
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0] * 3
    torch.library.opcheck(scaled, (torch.ones(3, device="neuron", requires_grad=True), 2.0), test_utils=CHECKS)


def test_an_operator_that_writes() -> None:
    x = torch.zeros(3, device="neuron")
    fill(x, 2.0)
    assert x.tolist() == [2.0] * 3


def test_an_operator_registered_for_the_device(library: torch.library.Library) -> None:
    assert torch.ops.neuron_test.twice(torch.ones(2, device="neuron")).tolist() == [2.0, 2.0]


def test_an_operator_without_autograd_is_not_silently_constant(library: torch.library.Library) -> None:
    x = torch.ones(2, device="neuron", requires_grad=True)
    y = torch.ops.neuron_test.twice(x)
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        y.sum().backward()


def test_an_operator_for_the_cpu_falls_back(library: torch.library.Library) -> None:
    y = torch.ops.neuron_test.only_cpu(torch.ones(2, device="neuron"))
    assert y.is_neuron
    assert y.tolist() == [3.0, 3.0]


def test_an_operator_of_other_operators(library: torch.library.Library) -> None:
    x = torch.ones(2, device="neuron", requires_grad=True)
    torch.ops.neuron_test.composite(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_an_operator_without_an_implementation(library: torch.library.Library) -> None:
    with pytest.raises(NotImplementedError, match="neuron_test::nowhere"):
        torch.ops.neuron_test.nowhere(torch.ones(2, device="neuron"))


def test_autograd_functions() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
            return 3 * x**2 * grad

    x = torch.tensor([2.0], device="neuron", requires_grad=True)
    Cube.apply(x).backward()
    assert x.grad is not None
    assert x.grad.item() == 12.0
