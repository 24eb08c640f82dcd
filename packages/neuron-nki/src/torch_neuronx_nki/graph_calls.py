"""A launch as a node of a graph: one operator per number of results, whose other arguments say what is launched.

The operators are pure: what the kernel writes to its arguments comes back as the first results. The arguments are named
after the attributes of the custom call that they become. ``backend_config`` is JSON in base64, with the documented
fields ``kernel_version``, ``klir_binary``, ``func_name``, ``grid`` and ``has_collectives``; what the simulator needs
besides, and the chip's compiler has no field for, is in ``simulator``.
"""

import base64
import binascii
import enum
import importlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from torch_neuronx_nki import dtypes
from torch_neuronx_nki.errors import NkiLaunchError
from torch_neuronx_nki.fingerprint import fingerprint, identity, of_identity

NAMESPACE = "torch_neuronx_nki"
MAX_RESULTS = 32


@dataclass(frozen=True, slots=True)
class GraphCall:
    """One launch of a graph."""

    kernel: str
    """``module:qualified name`` of its function."""
    fingerprint: str
    """Of the function and of all that it uses."""
    lnc: int
    arguments: Any
    """Positional and keyword arguments, encoded: numbers stand for the tensors."""
    mutated: tuple[int, ...]
    """Which tensors the kernel writes to."""
    results: tuple[tuple[tuple[int, ...], str], ...]
    """Shape and dtype of each new tensor that it returns."""
    settings: dict[str, Any]
    """What ``nki.simulate`` was given."""
    version: str = ""
    """Of the kernel language."""
    inputs: tuple[str, ...] = ()
    """Names of the tensors: parameters of the function, and where in them."""
    has_collectives: bool = False
    """Whether it communicates with other ranks."""

    @property
    def outputs(self) -> int:
        """Number of results of the operator."""
        return len(self.mutated) + len(self.results)

    @property
    def aliases(self) -> list[int]:
        """The operands that results are, each followed by the number of its result."""
        return [number for pair in zip(self.mutated, range(len(self.mutated)), strict=True) for number in pair]

    def constants(self) -> tuple[str, bool, list[int]]:
        """Return the arguments of the operator after its tensors."""
        return self.backend_config(), self.has_collectives, self.aliases

    def backend_config(self) -> str:
        """Write it: the same call gives the same text."""
        config = {
            "kernel_version": self.version,
            "klir_binary": {
                "binary": self.fingerprint,
                "input_names": self.inputs,
                "output_names": [f"output_{number}" for number in range(self.outputs)],
            },
            "func_name": self.kernel.rpartition(".")[2].rpartition(":")[2],
            "grid": [self.lnc],
            "has_collectives": self.has_collectives,
            "simulator": {
                "kernel": self.kernel,
                "arguments": self.arguments,
                "mutated": self.mutated,
                "results": self.results,
                "settings": self.settings,
            },
        }
        return base64.b64encode(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).decode()

    @staticmethod
    @cache
    def read(backend_config: str) -> "GraphCall":
        """Read what :meth:`backend_config` wrote. Raises :class:`NkiLaunchError` for anything else."""
        try:
            config = json.loads(base64.b64decode(backend_config, validate=True))
            own = config["simulator"]
            return GraphCall(
                kernel=own["kernel"],
                fingerprint=config["klir_binary"]["binary"],
                lnc=config["grid"][0],
                arguments=own["arguments"],
                mutated=tuple(own["mutated"]),
                results=tuple((tuple(shape), dtype) for shape, dtype in own["results"]),
                settings=own["settings"],
                version=config["kernel_version"],
                inputs=tuple(config["klir_binary"]["input_names"]),
                has_collectives=config["has_collectives"],
            )
        except (binascii.Error, ValueError, KeyError, TypeError, IndexError) as error:
            raise NkiLaunchError(
                f"The backend_config of a kernel's call is not what this package writes ({error!r}). Compile the graph "
                "again with this version."
            ) from error


# Kernels by name ------------------------------------------------------------------------------------------------------

_functions: dict[str, Callable[..., Any]] = {}
"""Functions of launches of this process, by fingerprint."""


def remember(function: Callable[..., Any]) -> str:
    """Keep ``function`` for the graphs that call it, and return its fingerprint."""
    found = fingerprint(function)
    _functions[found] = function
    return found


def name_of(function: Callable[..., Any]) -> str:
    """Return ``module:qualified name``."""
    return f"{function.__module__}:{function.__qualname__}"


def function_of(call: GraphCall) -> Callable[..., Any]:
    """Return the kernel's function: of this process, or imported where the graph comes from another one.

    Raises :class:`NkiLaunchError` where it cannot be found, or is not what was compiled.
    """
    found = _functions.get(call.fingerprint)
    if found is not None:
        return found
    module, _, path = call.kernel.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise NkiLaunchError(
            f"The compiled graph calls the kernel {call.kernel}, which cannot be found ({error}). Install what it is "
            "in, or compile again; a kernel inside another function is found only in the process that compiled it."
        ) from error
    function: Callable[..., Any] = getattr(value, "func", value)
    here = remember(function)
    if here != call.fingerprint:
        raise NkiLaunchError(
            f"The compiled graph calls the kernel {call.kernel} as it was with the fingerprint {call.fingerprint}; "
            f"here it is {here}. Compile the graph again."
        )
    return function


# Arguments ------------------------------------------------------------------------------------------------------------


def encode(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Write an argument as JSON data; tensors are appended to ``tensors``, a repeated one once."""
    match value:
        case None | bool() | str():
            return value
        case torch.Tensor():
            for position, known in enumerate(tensors):
                if known is value:
                    return {"tensor": position}
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        case enum.Enum():
            return {"enum": [type(value).__module__, type(value).__qualname__, value.name]}
        case int() | torch.SymInt():
            return int(value)
        case float() | torch.SymFloat():
            number = float(value)
            return number if math.isfinite(number) else {"float": repr(number)}
        case tuple() if type(value) in (tuple, torch.Size):
            return {"tuple": [encode(item, tensors) for item in value]}
        case list():
            return {"list": [encode(item, tensors) for item in value]}
        case dict():
            return {"dict": [[encode(name, tensors), encode(item, tensors)] for name, item in value.items()]}
        case dtypes.Dtype():
            return {"nki": str(value)}
        case torch.dtype():
            return {"torch": str(value).removeprefix("torch.")}
    return {"object": identity(value), "as": fingerprint(value)}


def input_names(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a name for each tensor, in the order of :func:`encode`: its parameter, and where it is in it."""
    parameters = list(inspect.signature(function).parameters.values())
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    found: list[tuple[str, torch.Tensor]] = []

    def walk(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if not any(known is value for _, known in found):
                found.append((name, value))
        elif isinstance(value, tuple | list):
            for position, item in enumerate(value):
                walk(f"{name}.{position}", item)
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(f"{name}.{key}", item)

    for position, value in enumerate(args):
        walk(names[position] if position < len(names) else f"{rest}.{position - len(names)}", value)
    for name, value in kwargs.items():
        walk(name, value)
    return tuple(name for name, _ in found)


def decode(data: Any, tensors: Sequence[Any]) -> Any:
    """Read what :func:`encode` wrote, with ``tensors`` in their places."""
    if isinstance(data, list):
        return [decode(item, tensors) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = [item for item in data.items() if item[0] != "as"]
    match kind:
        case "tensor":
            return tensors[content]
        case "enum":
            value: Any = importlib.import_module(content[0])
            for part in content[1].split("."):
                value = getattr(value, part)
            return value[content[2]]
        case "float":
            return float(content)
        case "tuple":
            return tuple(decode(item, tensors) for item in content)
        case "list":
            return [decode(item, tensors) for item in content]
        case "dict":
            return {decode(name, tensors): decode(item, tensors) for name, item in content}
        case "nki":
            return dtypes.as_dtype(content)
        case "torch":
            return getattr(torch, content)
    try:
        return of_identity(content)
    except KeyError:
        raise NkiLaunchError(
            "The compiled graph passes an object to a kernel that another process made. Compile the graph again, or "
            "pass numbers, strings, enumerations and tuples of them."
        ) from None


# Operators ------------------------------------------------------------------------------------------------------------


def operator_name(outputs: int) -> str:
    """Return the name of the operator with so many results."""
    return f"launch_{outputs}"


@cache
def define() -> torch.library.Library:
    """Register the operators; the first call does it."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    for outputs in range(1, MAX_RESULTS + 1):
        name = operator_name(outputs)
        results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
        library.define(f"{name}({_PARAMETERS}) -> {results}")  # type: ignore[no-untyped-call]
        library.impl(name, _run, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"{NAMESPACE}::{name}", _fake, lib=library)
        torch.library.register_vmap(f"{NAMESPACE}::{name}", _vmap, lib=library)
    return library


def operator(outputs: int) -> Any:
    """Return the operator with so many results."""
    define()
    return getattr(getattr(torch.ops, NAMESPACE), operator_name(outputs)).default


_PARAMETERS = "Tensor[] tensors, str backend_config, bool has_collectives, int[] operand_output_aliases"


def _as_results(values: Sequence[torch.Tensor]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _fake(tensors: Sequence[torch.Tensor], backend_config: str, *_: Any) -> Any:
    call = GraphCall.read(backend_config)
    changed = [torch.empty_like(tensors[i], memory_format=torch.contiguous_format) for i in call.mutated]
    new = [tensors[0].new_empty(shape, dtype=getattr(torch, dtype)) for shape, dtype in call.results]
    return _as_results([*changed, *new])


def _run(tensors: Sequence[torch.Tensor], backend_config: str, *_: Any) -> Any:
    call = GraphCall.read(backend_config)
    copies = {i: tensors[i].clone(memory_format=torch.contiguous_format) for i in call.mutated}
    new = execute(call, [copies.get(i, tensor) for i, tensor in enumerate(tensors)])
    return _as_results([*copies.values(), *new])


def execute(call: GraphCall, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Run the kernel of ``call`` and return its new tensors, contiguous."""
    from torch_neuronx_nki.run import run_kernel

    args, kwargs = decode(call.arguments, tensors)
    result = run_kernel(function_of(call), args, kwargs, lnc=call.lnc, settings=call.settings)
    return [value.contiguous() for value in new_tensors(result, tensors)]


def new_tensors(result: Any, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors in what a kernel returned that are not among its arguments, each once."""
    from torch.utils._pytree import tree_leaves

    found: list[torch.Tensor] = []
    for leaf in tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and not any(leaf is known for known in (*tensors, *found)):
            found.append(leaf)
    return found


def _vmap(info: Any, in_dims: Any, tensors: Sequence[torch.Tensor], backend_config: str, *_: Any) -> Any:
    """Launch once per element: a kernel is made for the shapes that it is given."""
    call = GraphCall.read(backend_config)
    dims = in_dims[0]
    rows = [
        operator(call.outputs)(
            [tensor if dim is None else tensor.select(dim, i) for tensor, dim in zip(tensors, dims, strict=True)],
            *call.constants(),
        )
        for i in range(info.batch_size)
    ]
    if call.outputs == 1:
        return torch.stack(rows), 0
    return tuple(torch.stack(column) for column in zip(*rows, strict=True)), (0,) * call.outputs
