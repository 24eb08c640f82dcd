"""Arguments that lie in one memory, one of which is written into: outputs are what they are in eager mode."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from .helpers import compiled


def _memory(device: str) -> tuple[Tensor, Tensor]:
    return (torch.arange(40.0).reshape(5, 8).to(device), torch.arange(24, dtype=torch.int32).reshape(6, 4).to(device))


def _two_in_one(device: str) -> list[Tensor]:
    memory, other = _memory(device)
    part = memory[1:4]
    return [other[2:-1], part, part[1:]]


def _returned(other: Tensor, part: Tensor, rest: Tensor) -> tuple[Tensor, ...]:
    other += 1
    rest.mul_(2)
    return other, part.sum()


def _view_of_the_same_shape(other: Tensor, part: Tensor, rest: Tensor) -> tuple[Tensor, ...]:
    part.mul_(2)
    return part[0], rest.sum(), rest[1:, ::2]


def _view_of_another_shape(other: Tensor, part: Tensor, rest: Tensor) -> tuple[Tensor, ...]:
    rest.mul_(2)
    return part[..., -1:], part.t(), rest.unsqueeze(0), other.view(-1)


def _both(other: Tensor, part: Tensor, rest: Tensor) -> tuple[Tensor, ...]:
    part.zero_()
    other.zero_()
    return rest, part, other[1:]


@pytest.mark.parametrize("function", [_returned, _view_of_the_same_shape, _view_of_another_shape, _both])
def test_outputs_that_are_views(function: Callable[..., Sequence[Tensor]]) -> None:
    host, device = _two_in_one("cpu"), _two_in_one("neuron")
    expected, actual = function(*host), compiled(function)(*device)
    for one, other in zip([*expected, *host], [*actual, *device], strict=True):
        assert torch.equal(other.cpu(), one)
    for one, other in zip(expected, actual, strict=True):  # in the same memory as in eager mode
        shared = [one.untyped_storage()._cdata == argument.untyped_storage()._cdata for argument in host]
        assert [other.untyped_storage()._cdata == argument.untyped_storage()._cdata for argument in device] == shared


def _copied_before(first: Tensor, rest: Tensor) -> tuple[Tensor, ...]:
    flat, sums = rest.flatten(), first + 1
    rest.add_(1)
    first.zero_()
    return flat, sums


def test_arguments_with_gaps_that_are_both_written() -> None:
    """Of every other column `flatten` is a copy."""
    host, device = ([memory[:, 1::2], memory[1:, 1::2]] for memory in (_memory("cpu")[0], _memory("neuron")[0]))
    expected, actual = _copied_before(*host), compiled(_copied_before)(*device)
    assert all(torch.equal(other.cpu(), one) for one, other in zip([*expected, *host], [*actual, *device], strict=True))


def test_other_sizes() -> None:
    """PyTorch has another symbol for the size of the memory than for those of the arguments."""
    call = compiled(_copied_before)
    for rows in (2, 5, 3, 2):
        host, device = (
            [memory, memory[1:]] for memory in (torch.arange(float(rows)), torch.arange(float(rows)).to("neuron"))
        )
        expected, actual = _copied_before(*host), call(*device)
        pairs = zip([*expected, *host], [*actual, *device], strict=True)
        assert all(torch.equal(other.cpu(), one) for one, other in pairs)


def test_a_call_that_the_cache_had() -> None:
    for _ in range(2):
        torch._dynamo.reset()
        host, device = _two_in_one("cpu"), _two_in_one("neuron")
        expected, actual = _view_of_the_same_shape(*host), compiled(_view_of_the_same_shape)(*device)
        assert all(torch.equal(other.cpu(), one) for one, other in zip(expected, actual, strict=True))
