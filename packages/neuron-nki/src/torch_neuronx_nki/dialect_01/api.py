"""``neuronxcc.nki``: the first dialect of the kernel language, as published samples use it.

A thin layer over the current language: tiles are indexed with arrays and assigned to, instructions return their result.
It checks less than the current language, and needs data: shapes alone are not followed.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch.utils._pytree import tree_map

from torch_neuronx_nki import source, typing
from torch_neuronx_nki.dialect_01 import compiler, isa, language
from torch_neuronx_nki.dialect_01.programs import each_program
from torch_neuronx_nki.dialect_01.tiles import Tile, of_tensor
from torch_neuronx_nki.errors import NkiLaunchError
from torch_neuronx_nki.jit import Kernel, simulate
from torch_neuronx_nki.machine import current_core, violation
from torch_neuronx_nki.tensors import NkiTensor

__path__: list[str] = []
"""Makes ``import neuronxcc.nki.language`` ask for the submodule."""


def jit(function: Any = None, /, **settings: Any) -> Any:
    """Make a kernel of a function of the first dialect; ``mode`` and other settings have no effect."""
    if function is None:
        return lambda decorated: jit(decorated, **settings)
    return function if isinstance(function, LegacyKernel) else LegacyKernel(function)


class LegacyKernel(Kernel):
    """A kernel of the first dialect. ``kernel[4, 2]`` runs a grid of programs, one after the other, on one core."""

    def __init__(self, function: Callable[..., Any], grid: tuple[int, ...] = ()) -> None:
        super().__init__(_adapted(function, grid))
        self.function = function

    def __getitem__(self, grid: Any) -> "LegacyKernel":
        sizes: tuple[Any, ...] = grid if isinstance(grid, tuple) else (grid,)
        counts = (size.count if isinstance(size, language.spmd_dim) else size for size in sizes)
        return LegacyKernel(self.function, tuple(map(int, counts)))


def _adapted(function: Callable[..., Any], grid: tuple[int, ...]) -> Callable[..., Any]:
    @functools.wraps(function)
    @source.calls_back
    def run(*args: Any, **kwargs: Any) -> Any:
        current_core().verifier = None  # it does not see what masks leave out
        given = tree_map(_to_tile, (args, kwargs))
        results = [function(*given[0], **given[1]) for _ in each_program(current_core(), grid)]
        return tree_map(_to_tensor, results[0])

    return run


def _to_tile(value: Any) -> Any:
    return of_tensor(value) if isinstance(value, NkiTensor) else value


def _to_tensor(value: Any) -> Any:
    if not isinstance(value, Tile):
        return value
    if value.origin is None:
        raise violation(
            "output-buffer",
            f"The kernel returns a tile in {value.buffer.name}",
            limit="shared_hbm",
            actual=value.buffer.name,
            advice="Allocate results with buffer=nl.shared_hbm and store to them.",
        )
    return value.origin


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run ``kernel`` in the simulator: what calling it does."""
    return simulate(kernel if isinstance(kernel, Kernel) else jit(kernel))(*args, **kwargs)


def _needs_a_chip(name: str) -> Callable[..., Any]:
    def decorate(function: Any = None, /, **_: Any) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise NkiLaunchError(f"nki.{name} measures on a chip. Call the kernel under nki.jit, which simulates it.")

        return refuse if function is not None else lambda decorated: refuse

    decorate.__name__ = name
    decorate.__doc__ = f"Make a function that raises when it is called: nki.{name} needs a chip."
    return decorate


benchmark, profile = _needs_a_chip("benchmark"), _needs_a_chip("profile")
baremetal = jit
trace = jit

__all__ = [
    "baremetal",
    "benchmark",
    "compiler",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate_kernel",
    "trace",
    "typing",
]
