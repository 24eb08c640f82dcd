"""The table of operators that lower, made for one set of versions and shipped with this package.

``python -m tools.lowering_support`` makes it: every call that PyTorch's own samples make is traced and lowered, by
itself, forward and backward. It is believed where the fingerprint says that nothing has changed since: the versions of
PyTorch and torch-mlir, and this package's own passes and decompositions. Elsewhere, and for operators that are not in
it, a graph is lowered and what failed is remembered (``learned``).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

SHIPPED = Path(__file__).with_name("table.json")
FORMAT = 1
_PACKAGE = Path(__file__).parents[1]
_DECIDING = ("decompositions", "lowering", "passes", "worker")
"""Folders of this package that decide what lowers."""


@dataclass(frozen=True, slots=True)
class Support:
    """Whether the calls of one operator lower; a reason where none does, ``None`` where one was seen to."""

    forward: str | None
    backward: str | None
    """The same for the gradient; ``None`` also where there is no gradient."""


@cache
def fingerprint() -> str:
    """Return what stands for everything in this installation, except plugins, that decides what lowers."""
    digest = hashlib.sha256(f"{version('torch')}\0{version('torch-mlir')}\0{FORMAT}".encode())
    for folder in _DECIDING:
        for path in sorted((_PACKAGE / folder).rglob("*.py")):
            digest.update(f"\0{path.relative_to(_PACKAGE)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def shipped() -> Mapping[str, Support]:
    """Return the table by the dispatcher's names (``aten::add.Tensor``); empty where it was made for another state."""
    document = read()
    if document["format"] != FORMAT or document["metadata"]["fingerprint"] != fingerprint():
        return MappingProxyType({})
    return MappingProxyType({name: Support(*row) for name, row in document["ops"].items()})


def read() -> dict[str, Any]:
    """Return the shipped document: format, metadata, and two reasons by operator."""
    document: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return document


def changed_by_plugins() -> frozenset[str]:
    """Return the operators to which a plugin gives a decomposition or a lowering: the table does not speak of them."""
    from torch_neuronx import plugins

    return _changed(plugins.manager().generation)


@lru_cache(maxsize=1)  # asked for every operator that Dynamo traces
def _changed(generation: int) -> frozenset[str]:
    from torch_neuronx import plugins

    manager = plugins.manager()
    lowered = (name.removesuffix(".default") for name in (*manager.lowerings(), *manager.expansions()))
    return frozenset(map(dispatcher_name, manager.decompositions())) | frozenset(lowered)


def dispatcher_name(op: Any) -> str:
    """Return ``aten::add.Tensor``, and ``aten::eye`` for the default overload."""
    overload = op._overloadname
    return str(op._schema.name) + ("" if overload == "default" else f".{overload}")
