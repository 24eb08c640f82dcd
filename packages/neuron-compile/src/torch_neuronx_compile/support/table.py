"""The table of operators that lower, made for one set of versions and shipped with this package.

``python -m tools.lowering_support`` makes it: every call that PyTorch's own samples make is traced and lowered, by
itself, forward and backward. It is believed where PyTorch and torch-mlir have the versions that it was made with. That
it was made with this package's passes and decompositions is for a test to see, not for every program: an outdated row
breaks a graph where none need be broken, or lets a call through that is then found out. Elsewhere, and for operators
that are not in it, a graph is lowered and what failed is remembered (``learned``).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

SHIPPED = Path(__file__).with_name("table.json")
FORMAT = 2
_PACKAGE = Path(__file__).parents[1]
_DECIDING = (
    "decompositions", "lowering", "passes", "worker", "attention_ops.py", "documented_ops.py",
    "normalization_ops.py", "ops.py", "random_ops.py", "structured_ops.py",
)  # fmt: skip
"""What decides what lowers, of this package."""
_RUNNING = frozenset({"__main__.py", "child.py", "client.py", "pool.py", "protocol.py"})
"""Modules of the worker that run it, and decide nothing."""


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
    for name, content in _sources():
        digest.update(f"\0{name}\0".encode() + content)
    return digest.hexdigest()


def sources() -> str:
    """Return a digest of the sources that decide what lowers; comments and empty lines do not count."""
    digest = hashlib.sha256()
    for name, content in _sources():
        lines = (line for line in content.splitlines() if line.strip() and not line.lstrip().startswith(b"#"))
        digest.update(f"\0{name}\0".encode() + b"\n".join(lines))
    return digest.hexdigest()


def _sources() -> Iterator[tuple[str, bytes]]:
    for name in _DECIDING:
        path = _PACKAGE / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            if path.name != "worker" or file.name not in _RUNNING:
                yield str(file.relative_to(_PACKAGE)), file.read_bytes()


@cache
def shipped() -> Mapping[str, Support]:
    """Return the table by the dispatcher's names (``aten::add.Tensor``); empty where it was made for other versions."""
    document = read()
    made = document["metadata"]
    here = (FORMAT, version("torch").partition("+")[0], version("torch-mlir"))
    if (document["format"], made["torch"].partition("+")[0], made["torch-mlir"]) != here:
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
