"""Makes PyTorch operators of functions that launch kernels."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch

from torch_neuronx import plugins
from torch_neuronx_nki._compat import CustomOpDef, FunctionalTensorMode
from torch_neuronx_nki.errors import NkiSchemaError, NkiShapeError
from torch_neuronx_nki.fingerprint import fingerprint

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*", re.ASCII)
_RESERVED_NAMESPACES = frozenset({"aten", "prim", "prims"})


@overload
def nki_op(name: str, /, *, mutates_args: Iterable[str] = ()) -> Callable[[Callable[..., Any]], CustomOpDef]: ...


@overload
def nki_op(name: str, fn: Callable[..., Any], /, *, mutates_args: Iterable[str] = ()) -> CustomOpDef: ...


def nki_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: Iterable[str] = ()
) -> CustomOpDef | Callable[[Callable[..., Any]], CustomOpDef]:
    """Make the operator ``torch.ops.<namespace>.<name>`` of a function that launches kernels.

    The function's type annotations give the schema: tensors, lists of tensors, numbers, strings, dtypes and devices in;
    a tensor, several, or ``None`` out. In eager mode the operator runs the function, on tensors of any device; to
    autograd, Dynamo and ``torch.export`` it is one opaque call. In graphs for the device the function is traced, and
    each kernel that it launches is one custom call. Results must be new tensors.

    The shapes of the results follow from running the function on tensors without data. Where they depend on values, or
    the function looks at memory, state them with ``register_fake``. Gradients come from ``register_autograd``. Both
    are methods of the returned ``torch.library.CustomOpDef``::

        @nki_op("my_kernels::scale")
        def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
            return launch(scale_kernel, x, factor)

    Args:
        name: ``namespace::name``. A second operator of a name replaces the first.
        fn: The function; left out where ``nki_op`` decorates.
        mutates_args: Names of the tensor arguments that the function writes to.

    Raises:
        NkiSchemaError: No schema follows from what was given.
    """
    _check_name(name)
    mutated = _checked_mutates_args(name, mutates_args)

    def make(function: Callable[..., Any]) -> CustomOpDef:
        return _make_operator(name, function, mutated)

    return make if fn is None else make(fn)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise NkiSchemaError(f"{name!r} does not name an operator. Use 'namespace::name'.")
    namespace = name.partition("::")[0]
    if namespace in _RESERVED_NAMESPACES:
        raise NkiSchemaError(f"The namespace of {name!r} belongs to PyTorch. Use the name of your package.")


def _checked_mutates_args(name: str, mutates_args: Iterable[str]) -> tuple[str, ...]:
    if isinstance(mutates_args, str):
        raise NkiSchemaError(
            f"mutates_args of {name} is the string {mutates_args!r}. Use a tuple of argument names, as in "
            f"({mutates_args!r},)."
        )
    return tuple(mutates_args)


def _make_operator(name: str, function: Callable[..., Any], mutates_args: tuple[str, ...]) -> CustomOpDef:
    if not inspect.isfunction(function):
        raise NkiSchemaError(
            f"{name} is made of {function!r}, which is not a Python function. Decorate a function that "
            "launches the kernel and has type annotations."
        )
    try:
        operator = torch.library.custom_op(name, function, mutates_args=mutates_args)
    except (ValueError, NotImplementedError) as error:
        raise NkiSchemaError(f"No schema for {name} follows from {function.__qualname__}: {error}") from error
    operator.register_fake(_shapes_by_running(name, function))
    overload = operator._opoverload
    _bodies[overload] = _Body(function, operator)
    plugins.manager().ask_again("torch_neuronx_register_decompositions")
    if mutates_args:
        torch.library.register_torch_dispatch(overload, FunctionalTensorMode, _in_functional_trace)
    return operator


class _Body:
    """The function of an operator, as a decomposition: its name tells whether operator or gradient have changed."""

    def __init__(self, function: Callable[..., Any], operator: CustomOpDef) -> None:
        self._function = function
        self._operator = operator
        self.__module__ = function.__module__

    def __getattr__(self, name: str) -> str:
        if name != "__qualname__":  # a class body cannot define this one
            raise AttributeError(name)
        definition = self._operator
        parts = [self._function, definition._backward_fn, definition._setup_context_fn]
        return f"{self._function.__qualname__} {fingerprint(*(part for part in parts if part is not None))}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


_bodies: dict[torch._ops.OpOverload, _Body] = {}


def decompositions() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """Return the functions of all operators that ``nki_op`` has made."""
    return dict(_bodies)


def _in_functional_trace(
    mode: Any, op: torch._ops.OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Trace an operator that writes to its arguments: its function's own writes are turned into values by the trace."""
    if torch.compiler.is_exporting():
        return mode.__torch_dispatch__(op, types, args, kwargs)
    with mode:
        return _bodies[op](*args, **(kwargs or {}))


def _shapes_by_running(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A fake implementation that runs ``function`` itself, on tensors that have a shape, a dtype and a device only."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # anything the function may raise on tensors that hold no data
            raise NkiShapeError(
                f"The result shapes of {name} do not follow from running {function.__qualname__} on tensors without "
                f"data: {type(error).__name__}: {error}. State them in a function decorated with @{name.split('::')[1]}"
                ".register_fake."
            ) from error

    return run
