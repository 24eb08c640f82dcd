"""Operators over lists of tensors, which optimizers use: one ordinary call for each tensor.

Each is exact: it computes what the ordinary operator computes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten
_PREFIX = "_foreach_"


def _addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1) -> Tensor:
    result: Tensor = self + value * (tensor1 / tensor2)
    return result


def _addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1) -> Tensor:
    result: Tensor = self + value * (tensor1 * tensor2)
    return result


def _norm(self: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(self, ord, dtype=dtype)
    return result


def _powsum(self: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    return self.to(dtype or self.dtype).abs().pow(ord).sum()


def _limit(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def limit(self: Tensor, other: Any) -> Tensor:
        return function(self, other if isinstance(other, Tensor) else torch.full_like(self, other))

    return limit


_SINGLE: dict[str, Callable[..., Tensor]] = {
    "addcdiv": _addcdiv,
    "addcmul": _addcmul,
    "clamp_max": _limit(torch.minimum),
    "clamp_min": _limit(torch.maximum),
    "maximum": _limit(torch.maximum),
    "minimum": _limit(torch.minimum),
    "norm": _norm,
    "powsum": _powsum,
}
"""What an operator is for one tensor where torch has no function of its name with the same arguments."""


def _expansion(overload: OpOverload) -> Callable[..., list[Tensor]]:
    name = overload._opname.removeprefix(_PREFIX)
    single = _SINGLE.get(name) or getattr(torch, name)
    arguments = overload._schema.arguments
    lists = {argument.name for argument in arguments if str(argument.type) in ("List[Tensor]", "List[number]")}
    # A tensor that holds one number for each tensor of the list; any other single tensor goes to each of them.
    if overload._overloadname == "Tensor" and name in ("addcdiv", "addcmul"):
        lists.add("scalars")
    positional = [argument.name for argument in arguments if not argument.kwarg_only]

    def expand(*given: Any, **named: Any) -> list[Tensor]:
        values = {argument.name: value for argument, value in zip(arguments, given, strict=False)} | named
        count = max(len(values[name]) for name in lists if isinstance(values[name], (list, tuple)))
        results = []
        for i in range(count):
            one = {name: value[i] if name in lists else value for name, value in values.items()}
            first = [one.pop(name) for name in positional if name in one]
            results.append(single(*first, **one))
        return results

    return expand


def _table() -> dict[OpOverload, Callable[..., Any]]:
    table: dict[OpOverload, Callable[..., Any]] = {}
    for name in dir(torch._C._VariableFunctions):
        if name.startswith(_PREFIX) and not name.endswith("_"):
            packet = getattr(aten, name)
            # Not packet.__getattr__: it would make new overloads, which rules registered for the others do not know.
            for overload in (getattr(packet, found) for found in packet.overloads()):
                if not overload._schema.is_mutable:
                    table[overload] = _expansion(overload)
    return table


DECOMPOSITIONS = _table()
