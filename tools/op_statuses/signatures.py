"""Calls of ATen overloads as JSON: what a call looked like, without the values of its tensors."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tools.op_statuses._compat import OpOverload

_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class NotDescribable(TypeError):
    """An argument that has no JSON form here (a generator, a storage): the call is not recorded."""


@dataclass(frozen=True)
class Call:
    """One call of an overload; `args` and `kwargs` hold encoded values."""

    op: str
    args: list[Any]
    kwargs: dict[str, Any]

    @property
    def digest(self) -> str:
        """A name for the call that is equal for equal calls."""
        return hashlib.sha256(json.dumps([self.op, self.args, self.kwargs], sort_keys=True).encode()).hexdigest()[:16]


def op_name(overload: OpOverload) -> str:
    """The dispatcher's name, `aten::add.Tensor`; the default overload has no suffix."""
    return str(overload._schema.name) + (f".{overload._overloadname}" if overload._overloadname != "default" else "")


def find_overload(name: str) -> OpOverload:
    """The overload behind a dispatcher's name.

    Raises:
        AttributeError: no such operator.
    """
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    found: OpOverload = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    return found


def describe_call(overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Describe a call.

    Raises:
        NotDescribable: an argument has no JSON form.
    """
    return Call(
        op_name(overload),
        [encode(value) for value in args],
        {key: encode(value) for key, value in kwargs.items() if not (key == "generator" and value is None)},
    )


def encode(value: Any) -> Any:
    """JSON form of one argument."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case torch.Tensor():
            if value.layout is not torch.strided or value.is_quantized:
                raise NotDescribable(f"a tensor of layout {value.layout}")
            dtype = str(value.dtype).removeprefix("torch.")
            return {"tensor": list(value.shape), "stride": list(value.stride()), "dtype": dtype}
        case complex():
            return {"complex": [value.real, value.imag]}
        case torch.dtype():
            return {"scalar_type": str(value).removeprefix("torch.")}
        case torch.device():
            return {"device": str(value)}
        case torch.layout() | torch.memory_format():
            return {"constant": str(value).removeprefix("torch.")}
        case list() | tuple():
            return [encode(item) for item in value]
    raise NotDescribable(f"an argument of type {type(value).__name__}")


def decode(value: Any, tensor: Callable[[torch.Size, tuple[int, ...], torch.dtype], Any]) -> Any:
    """The argument behind a JSON form; `tensor` makes what stands for a tensor of a shape, strides and dtype."""
    match value:
        case {"tensor": shape, "stride": stride, "dtype": dtype}:
            return tensor(torch.Size(shape), tuple(stride), _DTYPES[dtype])
        case {"complex": [real, imaginary]}:
            return complex(real, imaginary)
        case {"scalar_type": name}:
            return _DTYPES[name]
        case {"device": name}:
            return torch.device(name)
        case {"constant": name}:
            return getattr(torch, name)
        case list():
            return [decode(item, tensor) for item in value]
    return value
