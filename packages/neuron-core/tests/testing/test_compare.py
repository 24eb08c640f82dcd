"""`compare_with_cpu`, here between the CPU and itself: what it calls equal, and how it says what is not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_neuronx.testing import CpuRunError, Values, compare_with_cpu

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]


class Unlike:
    """Behaves in one way in the first call and in another in the second: a device that is wrong."""

    def __init__(self, first: Callable[..., Any], second: Callable[..., Any]) -> None:
        self.calls = iter((first, second))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return next(self.calls)(*args, **kwargs)


@settings(deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    dtype=st.sampled_from(DTYPES),
    names=st.lists(st.text(max_size=3), max_size=3, unique=True),
)
def test_a_function_equals_itself(shape: list[int], dtype: torch.dtype, names: list[str]) -> None:
    x = torch.ones(shape, dtype=dtype)

    def function(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: torch.logical_not(x) for name in names}

    found = compare_with_cpu(function, x, device="cpu")
    assert (found.outputs, found.inputs, found.gradients) == (len(names), 1, 0)
    assert found.exact == len(names) + 1
    assert found.largest_difference == 0.0


def test_counts_gradients_of_arguments_and_parameters() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    model = torch.nn.Linear(4, 2)
    found = compare_with_cpu(model, x, device="cpu")
    assert (found.outputs, found.gradients) == (1, 3)
    assert compare_with_cpu(model, x, device="cpu", grad=False).gradients == 0
    assert model.weight.grad is None
    assert x.grad is None


def test_arguments_stay_as_they_were() -> None:
    x = torch.zeros(3)
    assert compare_with_cpu(torch.Tensor.add_, x, 1, device="cpu").inputs == 1
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_one_tensor_passed_twice_stays_one() -> None:
    seen = []

    def function(a: torch.Tensor, b: torch.Tensor) -> None:
        seen.append(a is b)

    x = torch.zeros(2)
    compare_with_cpu(function, x, x, device="cpu")
    compare_with_cpu(function, x, x.clone(), device="cpu")
    assert seen == [True, True, False, False]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (lambda x: x + 1, r"output .*float32\[2\].*Mismatched elements: 2 / 2"),
        (lambda x: x.double(), r"float64\[2\], on the CPU float32\[2\]"),
        (lambda x: x.reshape(2, 1), r"float32\[2, 1\], on the CPU float32\[2\]"),
        (lambda x: (x, x), "the structure is"),
        (lambda x: x.to("meta"), "is on meta"),
        (lambda x: 3, "3, on the CPU"),
    ],
)
def test_says_where_and_how_results_differ(second: Callable[..., Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        compare_with_cpu(Unlike(lambda x: x * 1, second), torch.ones(2), device="cpu")


def test_finds_a_wrong_gradient() -> None:
    x = torch.ones(2, requires_grad=True)
    wrong = Unlike(lambda x: x * 2, lambda x: x.detach() + x)
    with pytest.raises(AssertionError, match=r"gradient of \[0\]\[0\].*float32\[2\]"):
        compare_with_cpu(wrong, x, device="cpu")
    missing = Unlike(lambda x, y: x * y, lambda x, y: x.detach() * y)
    with pytest.raises(AssertionError, match=r"gradient of \[0\]\[0\]: there is none, unlike on the CPU"):
        compare_with_cpu(missing, x, torch.ones(2, requires_grad=True), device="cpu")


def test_finds_what_was_written_into_an_argument() -> None:
    def writes(x: torch.Tensor) -> None:
        x.add_(1)

    with pytest.raises(AssertionError, match=r"input \[0\]\[0\]"):
        compare_with_cpu(Unlike(writes, lambda x: None), torch.zeros(2), device="cpu")


def test_tolerances_and_their_default() -> None:
    near = Unlike(lambda x: x, lambda x: x + 5e-6)
    found = compare_with_cpu(near, torch.zeros(2), device="cpu")
    assert found.exact == 1
    assert found.largest_difference == pytest.approx(5e-6)
    with pytest.raises(AssertionError):
        compare_with_cpu(Unlike(lambda x: x, lambda x: x + 5e-6), torch.zeros(2), device="cpu", rtol=0, atol=1e-6)


def test_values_that_depend_on_the_seed_are_found_and_left_out() -> None:
    calls = []

    def other_in_the_second_call(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
        calls.clear()

        def wrapped(x: torch.Tensor) -> torch.Tensor:
            calls.append(x)
            return function(x) + (len(calls) == 2)

        return wrapped

    x = torch.ones(9)
    draws = other_in_the_second_call(torch.rand_like)
    assert not compare_with_cpu(draws, x, device="cpu", values=Values.DETECT).values_compared
    wrong = other_in_the_second_call(torch.ones_like)
    with pytest.raises(AssertionError, match="not close"):
        compare_with_cpu(wrong, x, device="cpu", values=Values.DETECT)
    wrong = other_in_the_second_call(torch.ones_like)
    assert not compare_with_cpu(wrong, x, device="cpu", values=Values.IGNORE).values_compared
    assert compare_with_cpu(torch.rand_like, x, device="cpu", values=Values.DETECT).values_compared


def test_converts_floating_point_arguments() -> None:
    seen = []

    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        seen.append((x.dtype, i.dtype))
        return x[i]

    compare_with_cpu(function, torch.ones(2), torch.tensor([0]), device="cpu", dtype=torch.bfloat16)
    assert set(seen) == {(torch.bfloat16, torch.int64)}


def test_a_failure_on_the_cpu_is_not_a_difference() -> None:
    with pytest.raises(CpuRunError, match="RuntimeError"):
        compare_with_cpu(torch.mm, torch.ones(2, 3), torch.ones(2, 3), device="cpu")


def test_nan_equals_nan() -> None:
    assert compare_with_cpu(torch.log, -torch.ones(2), device="cpu").exact == 2
    assert compare_with_cpu(lambda x: float("nan"), torch.ones(1), device="cpu").outputs == 0
