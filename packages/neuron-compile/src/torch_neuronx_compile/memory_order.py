"""The order in which the dimensions of a tensor lie in memory."""

from collections.abc import Sequence


def in_memory(strides: Sequence[int]) -> list[int]:
    """Return the dimensions from the one whose neighbours are the furthest apart to that whose are the nearest."""
    return sorted(range(len(strides)), key=lambda dim: -strides[dim])


def inverse(order: Sequence[int]) -> list[int]:
    """Return the order that undoes ``order``."""
    return sorted(range(len(order)), key=lambda place: order[place])
