"""A prepared graph as text that is the same wherever the graph is: what the key of a lowered program is made of."""

import math
from typing import Any

import torch
from torch import fx


class UnknownArgumentError(Exception):
    """An argument has no text that is the same in every process."""


def graph_text(graph: fx.Graph) -> str:
    """Return one line per node: operator with schema, arguments, and the types of what it gives.

    Names of nodes, models and files, stack traces and other metadata are left out. Raises
    :class:`UnknownArgumentError` for a target or an argument that cannot be written.
    """
    numbers = {node: i for i, node in enumerate(graph.nodes)}
    return "\n".join(_line(node, numbers) for node in graph.nodes)


def _line(node: fx.Node, numbers: dict[fx.Node, int]) -> str:
    if node.op == "placeholder":
        call = "placeholder"
    elif node.op == "output":
        return f"output {_value(node.args, numbers)}"
    elif node.op == "call_function":
        keywords = dict(sorted(node.kwargs.items()))
        call = f"{_target(node.target)} {_value(node.args, numbers)} {_value(keywords, numbers)}"
    else:
        raise UnknownArgumentError(f"{node.op} {node.target}")
    return f"%{numbers[node]} = {call} : {_type(node.meta.get('val'))}"


def _target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema)
    name = getattr(target, "__qualname__", None)
    if type(target).__name__ != "builtin_function_or_method" or name is None:
        raise UnknownArgumentError(f"{target!r}")
    return f"{target.__module__}.{name}"


def _value(value: Any, numbers: dict[fx.Node, int]) -> str:
    match value:
        case fx.Node():
            return f"%{numbers[value]}"
        case None | bool() | int() | str():
            return repr(value)
        case float():
            return value.hex() if math.isfinite(value) else repr(value)
        case complex():
            return f"complex({_value(value.real, numbers)}, {_value(value.imag, numbers)})"
        case list() | tuple():
            return f"[{', '.join(_value(item, numbers) for item in value)}]"
        case dict():
            return f"{{{', '.join(f'{name}: {_value(item, numbers)}' for name, item in value.items())}}}"
        case slice():
            return f"slice({_value([value.start, value.stop, value.step], numbers)})"
        case torch.dtype() | torch.device() | torch.layout() | torch.memory_format():
            return str(value)
    raise UnknownArgumentError(f"{value!r}")


def _type(value: Any) -> str:
    match value:
        case torch.Tensor():
            strides = [int(stride) for stride in value.stride()]
            return f"{value.dtype}{[int(extent) for extent in value.shape]}{strides}"
        case list() | tuple():
            return f"({', '.join(map(_type, value))})"
        case None:
            return "none"
        case bool() | int() | float() | str() | torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return type(value).__name__
    raise UnknownArgumentError(f"a value of type {type(value).__name__}")
