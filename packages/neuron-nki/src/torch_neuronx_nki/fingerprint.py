"""What a kernel's source is, as a short text that changes with it: for the keys of compiled graphs.

The code of a function counts, with its defaults and everything of the user's that it names: the functions, classes and
constants that it reaches through globals, closures and modules. Comments, line numbers and file names do not. Libraries
count by their version.
"""

import dataclasses
import enum
import functools
import hashlib
import importlib.util
import secrets
import sys
import types
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

_PACKAGE = __name__.partition(".")[0]
_LIBRARIES = frozenset({"torch", "numpy", "ml_dtypes", "nki", "torch_neuronx", "neuronxcc", *sys.stdlib_module_names})
_PROCESS = secrets.token_hex(8)
_kept: dict[int, Any] = {}
"""Objects that are told apart by their identity: kept, so that no other object gets it."""


def fingerprint(*functions: Callable[..., Any]) -> str:
    """Return 32 hexadecimal digits for functions and what they use."""
    found = _Digest()
    for function in functions:
        found.add(function)
    return found.digest.hexdigest()[:32]


@cache
def simulator() -> str:
    """Return a fingerprint of this package: of everything that computes what a kernel says."""
    folder = Path(__file__).parent
    digest = hashlib.sha256(f"{metadata.version('torch-neuronx-nki')}\0{torch.__version__}".encode())
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"\0{path.relative_to(folder)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


class _Digest:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, int] = {}

    def text(self, *parts: object) -> None:
        for part in parts:
            content = str(part).encode()
            self.digest.update(f"{len(content)}:".encode())
            self.digest.update(content)

    def add(self, value: Any) -> None:
        match value:
            case None | bool() | int() | str() | bytes() | complex() | enum.Enum():
                self.text(type(value).__qualname__, repr(value))
                return
            case float():
                self.text("float", value.hex())
                return
            case torch.dtype() | torch.device() | range() | slice():
                self.text(repr(value))
                return
            case types.CodeType():
                self.code(value, {})
                return
        if id(value) in self.seen:
            self.text("again", self.seen[id(value)])
            return
        self.seen[id(value)] = len(self.seen)
        match value:
            case tuple() | list():
                self.text(type(value).__qualname__, len(value))
                for item in value:
                    self.add(item)
            case dict():
                self.text("dict", len(value))
                for name, item in value.items():
                    self.add(name)
                    self.add(item)
            case set() | frozenset():
                self.text("set", *sorted(map(repr, value)))
            case types.FunctionType():
                self.function(value)
            case types.MethodType():
                self.add(value.__func__)
                self.add(value.__self__)
            case functools.partial():
                self.add(value.func)
                self.add(value.args)
                self.add(value.keywords)
            case types.ModuleType():
                self.text("module", value.__name__)
            case type():
                self.type(value)
            case _:
                self.object(value)

    def function(self, function: types.FunctionType) -> None:
        self.text("function", function.__module__, function.__qualname__)
        if _is_library(function.__module__):
            return
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        self.code(function.__code__, function.__globals__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # a name that is not bound yet
                content = None
            self.text(name)
            self.add(content)

    def code(self, code: types.CodeType, names: dict[str, Any]) -> None:
        self.text("code", code.co_code.hex(), *code.co_names, *code.co_varnames)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.code(constant, names)
            else:
                self.add(constant)
        for name in code.co_names:
            if name not in names:
                continue
            found = names[name]
            self.add(found)
            if isinstance(found, types.ModuleType) and not _is_library(found.__name__):
                for attribute in code.co_names:
                    if attribute in vars(found):
                        self.text(attribute)
                        self.add(vars(found)[attribute])

    def type(self, kind: type) -> None:
        self.text("class", kind.__module__, kind.__qualname__)
        if _is_library(kind.__module__):
            return
        for base in kind.__bases__:
            self.add(base)
        for name, value in vars(kind).items():
            if name in ("__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"):
                continue
            if isinstance(value, property):
                value = (value.fget, value.fset)
            elif isinstance(value, staticmethod | classmethod):
                value = value.__func__
            if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
                continue
            self.text(name)
            self.add(value)

    def object(self, value: Any) -> None:
        kernel = getattr(value, "func", None)
        if isinstance(kernel, types.FunctionType):  # a kernel
            self.text("kernel", getattr(value, "lnc", 1))
            self.add(kernel)
            return
        self.text("object", type(value).__module__, type(value).__qualname__)
        if dataclasses.is_dataclass(value):
            self.add(type(value))
            for field in dataclasses.fields(value):
                self.add(getattr(value, field.name))
        elif isinstance(value, types.BuiltinFunctionType):
            self.text(value.__module__, value.__qualname__)
        elif _is_library(type(value).__module__) and " at 0x" not in repr(value):
            self.text(repr(value))
        else:
            self.text(identity(value))


def identity(value: Any) -> str:
    """Return a name for ``value`` that nothing else has, in this process or another."""
    _kept[id(value)] = value
    return f"{_PROCESS}-{id(value)}"


def of_identity(name: str) -> Any:
    """Return the object that :func:`identity` named; raises ``KeyError`` in another process."""
    process, _, number = name.partition("-")
    if process != _PROCESS:
        raise KeyError(name)
    return _kept[int(number)]


@cache
def _is_library(module: str | None) -> bool:
    if module is None:
        return True
    root = module.partition(".")[0]
    if root in _LIBRARIES:
        return True
    if root == _PACKAGE:
        return not module.startswith(f"{_PACKAGE}.kernels")
    if root == "__main__":
        return False
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin in ("built-in", "frozen")
