"""What a program is, and how its inputs are made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int32, torch.int64)
SPECIAL = (float("inf"), -float("inf"), float("nan"), 0.0, -0.0)


class Layout(Enum):
    """How an input lies in memory."""

    CONTIGUOUS = "contiguous"
    TRANSPOSED = "transposed"
    STRIDED = "strided"
    SLICED = "sliced"
    EXPANDED = "expanded"
    SHARED = "shared"
    """The input before it, but for its first row: the two lie in one memory."""


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a program."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: Layout
    requires_grad: bool
    special: bool = False
    """Whether some of its elements are infinite, NaN or a zero of either sign."""

    def make(self, generator: torch.Generator, device: str, before: Tensor | None) -> Tensor:
        """Return a tensor of this kind, which lies on ``device`` as it does on the CPU."""
        shape = list(self.shape)
        match self.layout:
            case Layout.SHARED if before is not None:
                return before[1:] if before.dim() else before[...]
            case Layout.TRANSPOSED if len(shape) >= 2:
                return self._values([*shape[:-2], shape[-1], shape[-2]], generator, device).transpose(-1, -2)
            case Layout.STRIDED if shape:
                return self._values([*shape[:-1], 2 * shape[-1] + 1], generator, device)[..., 1::2]
            case Layout.SLICED if shape:
                return self._values([shape[0] + 3, *shape[1:]], generator, device)[2:-1]
            case Layout.EXPANDED if shape:
                return self._values([1, *shape[1:]], generator, device).expand(shape)
        return self._values(shape, generator, device)

    def _values(self, shape: list[int], generator: torch.Generator, device: str) -> Tensor:
        if self.dtype is torch.bool:
            return torch.randint(0, 2, shape, generator=generator).bool().to(device)
        if self.dtype in INTEGERS:
            return torch.randint(-8, 9, shape, generator=generator).to(self.dtype).to(device)
        found = torch.randn(shape, generator=generator).to(self.dtype)
        if self.special:
            chosen = torch.tensor(SPECIAL)[torch.randint(0, len(SPECIAL), shape, generator=generator)]
            found = torch.where(torch.rand(shape, generator=generator) < 0.25, chosen.to(self.dtype), found)
        return found.to(device)


def make_inputs(inputs: Sequence[Input], device: str = "cpu", *, grad: bool = True) -> list[Tensor]:
    """Return the arguments; the same elements whatever the device."""
    made: list[Tensor] = []
    for i, entry in enumerate(inputs):
        tensor = entry.make(torch.Generator().manual_seed(i + 1), device, made[-1] if made else None)
        made.append(tensor.requires_grad_() if grad and entry.requires_grad else tensor)
    return made


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs, statements and outputs, as Python text that names values ``v0``, ``v1``, …"""

    inputs: tuple[Input, ...]
    statements: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def source(self) -> str:
        """The program as the source of a function ``program``."""
        arguments = ", ".join(f"v{i}" for i in range(len(self.inputs)))
        body = "".join(f"    {statement}\n" for statement in self.statements)
        return f"def program({arguments}):\n{body}    return ({', '.join(self.outputs)},)\n"

    def function(self) -> Callable[..., tuple[Tensor, ...]]:
        """Return the program as a function; every call gives another one, so that each is compiled anew."""
        names = namespace()
        exec(compile(self.source, "<random program>", "exec"), names)
        function: Callable[..., tuple[Tensor, ...]] = names["program"]
        return function


def namespace() -> dict[str, Any]:
    """What statements may name besides values."""
    return {"torch": torch, "F": torch.nn.functional}
