"""How a tensor lies in memory: the order of its dimensions, and how far it reaches."""

from collections.abc import Sequence

from torch import Tensor


def in_memory(strides: Sequence[int]) -> list[int]:
    """Return the dimensions from the one whose neighbours are the furthest apart to that whose are the nearest."""
    return sorted(range(len(strides)), key=lambda dim: -strides[dim])


def inverse(order: Sequence[int]) -> list[int]:
    """Return the order that undoes ``order``."""
    return sorted(range(len(order)), key=lambda place: order[place])


def is_dense(tensor: Tensor) -> bool:
    """Return whether the elements, in some order of dimensions, follow each other, each once."""
    return tensor.permute(in_memory(tensor.stride())).is_contiguous()


def last_element(shape: Sequence[int], strides: Sequence[int], offset: int) -> int:
    """Return how many elements from the start of the memory the last one is, where there is one."""
    return offset + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
