"""The compiled part of the package."""

from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx_compile.compilers.emulator.arrays import Description

def handlers() -> dict[str, object]:
    """Return the capsule of every XLA handler by custom-call target."""

class Program:
    """One loaded XLA program, called without a line of Python in between."""

    def __init__(
        self,
        execute: Callable[[list[Any]], Any],
        import_array: Callable[..., Any],
        export_array: Callable[[Any], object],
        inputs: list[Description],
        results: list[Any],
        core: int,
    ) -> None: ...
    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]: ...

class Steps:
    """A small program, run as calls of ATen."""

    def __init__(
        self,
        inputs: int,
        constants: list[torch.Tensor],
        steps: list[tuple[str, list[int], list[int]]],
        results: list[int],
        core: int,
    ) -> None: ...
    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]: ...
