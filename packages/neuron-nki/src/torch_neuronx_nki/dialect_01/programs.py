"""Grids of programs: the same kernel for each index, one after the other."""

import itertools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from torch_neuronx_nki.machine import Core

_program: ContextVar[tuple[tuple[int, ...], tuple[int, ...]]] = ContextVar("program", default=((), ()))


def each_program(core: Core, grid: tuple[int, ...]) -> Iterator[None]:
    """Make each program of ``grid`` the one that runs. Shared tensors are those that the first one made."""
    start = core.shared_count
    for index in itertools.product(*map(range, grid)):
        core.shared_count = start
        token = _program.set((index, grid))
        try:
            yield
        finally:
            _program.reset(token)


def program_id(axis: int = 0) -> int:
    """Return the index of the program that runs along ``axis``."""
    index = _program.get()[0]
    return index[axis] if index else 0


def num_programs(axes: Any = 0) -> Any:
    """Return the number of programs along an axis, or along several."""
    grid = _program.get()[1] or (1,)
    return grid[axes] if isinstance(axes, int) else tuple(grid[axis] for axis in axes)


def program_ndim() -> int:
    """Return the number of dimensions of the grid."""
    return len(_program.get()[1])
