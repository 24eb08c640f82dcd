"""Collects kernels that break a rule: the decorator says which one, the comment ``# wrong`` in which line."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torch_neuronx_nki.jit import Kernel, jit


@dataclass(frozen=True)
class Wrong:
    """One kernel with one mistake."""

    code: str
    kernel: Kernel
    args: tuple[Any, ...]
    settings: dict[str, Any]
    line: int

    @property
    def name(self) -> str:
        return self.kernel.func.__name__


CORPUS: list[Wrong] = []


def wrong(code: str, *args: Any, lnc: int = 1, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a kernel that breaks the rule of ``code`` when it gets ``args``; on trn2 unless ``target`` is given."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        lines, start = inspect.getsourcelines(function)
        marked = [start + at for at, line in enumerate(lines) if line.rstrip().endswith("# wrong")]
        assert len(marked) == 1, function.__name__
        kernel = jit(function)
        CORPUS.append(Wrong(code, kernel[lnc] if lnc > 1 else kernel, args, {"target": "trn2", **settings}, marked[0]))
        return function

    return add


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An argument of ones."""
    return torch.ones(shape, dtype=dtype)
