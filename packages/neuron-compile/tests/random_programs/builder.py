"""Adds statements to a program, running each on the CPU as it is added."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from .program import namespace

MAX_ELEMENTS = 4096
_REFUSED = (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError)


@dataclass(slots=True)
class Value:
    """A tensor of the program."""

    name: str
    example: Tensor
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.example.shape)

    @property
    def rank(self) -> int:
        return self.example.dim()

    @property
    def dtype(self) -> torch.dtype:
        return self.example.dtype

    @property
    def floating(self) -> bool:
        return self.example.is_floating_point()

    @property
    def boolean(self) -> bool:
        return self.example.dtype is torch.bool

    @property
    def finite(self) -> bool:
        return bool(torch.isfinite(self.example.detach()).all())

    @property
    def whole(self) -> bool:
        """Whether conversion to any dtype of integers is defined: not so of NaN, nor of what does not fit."""
        return bool((self.example.detach().abs() < 2e9).all()) if self.floating else True


@dataclass(slots=True)
class Builder:
    """A program that grows."""

    draw: Any
    values: list[Value] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    """Addresses of memory that no statement writes into.

    Where elements share it, a write changes others too, which PyTorch leaves open, and AOT Autograd does not know. What
    is beside windows becomes zero in every compiled function that writes into these.
    """

    def add(self, expression: str, *, exact: bool) -> None:
        """Add a statement unless its result is too large or the CPU refuses it."""
        try:
            result = eval(expression, namespace(), self._names())
        except _REFUSED:
            return
        if not isinstance(result, Tensor) or result.numel() > MAX_ELEMENTS or result.is_complex():
            return
        if _overlaps(result) or "unfold" in expression:
            self.kept.add(result.untyped_storage().data_ptr())
        name = f"v{len(self.values)}"
        self.values.append(Value(name, result, exact))
        self.statements.append(f"{name} = {expression}")

    def write(self, statement: str, target: Value, *, exact: bool) -> None:
        """Add a statement that writes into ``target``, unless the CPU refuses it."""
        memory = target.example.untyped_storage().data_ptr()
        if memory in self.kept:
            return
        try:
            exec(statement, namespace(), self._names())
        except _REFUSED:
            return
        for value in self.values:
            if value is target or value.example.untyped_storage().data_ptr() == memory:
                value.exact = value.exact and exact
        self.statements.append(statement)

    def _names(self) -> dict[str, Any]:
        return {value.name: value.example for value in self.values}

    def pick(self, accept: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """Choose one of the values that are acceptable, the last ones first: what is drawn leans towards the first."""
        found = [value for value in reversed(self.values) if accept(value)]
        return self.draw(st.sampled_from(found)) if found else None

    def one(self, *choices: str) -> str:
        """Choose a text."""
        return str(self.draw(st.sampled_from(choices)))

    def number(self, low: int, high: int) -> int:
        """Choose an integer, both ends included."""
        return int(self.draw(st.integers(low, high)))

    def flag(self) -> bool:
        """Choose a truth value."""
        return bool(self.draw(st.booleans()))

    def axis(self, value: Value) -> int:
        """Choose a dimension, counted from either end."""
        return self.number(-value.rank, value.rank - 1) if value.rank else 0


def _overlaps(tensor: Tensor) -> bool:
    """Whether elements share memory, as those of an expanded tensor and of overlapping windows do."""
    if tensor.layout is not torch.strided or tensor.numel() < 2:
        return False
    places = torch.zeros((), dtype=torch.int64)
    for extent, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = places[..., None] + torch.arange(extent) * step
    return places.unique().numel() < tensor.numel()
