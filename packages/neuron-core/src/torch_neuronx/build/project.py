"""What to compile, as declared in a distribution's `pyproject.toml`.

    [tool.hatch.build.hooks.neuron-extension]
    package = "src/torch_neuronx_dist"          # the import package that receives the outputs
    generate = "csrc/codegen/generate.py"       # optional: run with `--output DIR` before compiling
    headers = ["csrc/runtime/*.h"]              # optional: exported, by file name, to include/<import name>/

    [[tool.hatch.build.hooks.neuron-extension.libraries]]
    name = "torch_neuronx"                      # -> lib/libtorch_neuronx.so
    sources = ["csrc/runtime/*.cpp"]            # globs, relative to the project
    generated = ["*.cpp"]                       # globs, relative to the generator's output
    units = 2                                   # optional: `sources` in so many translation units, not one each
    include-dirs = ["csrc", "{jaxlib}/include"] # {module} is the folder of an installed package
    links = ["torch", "torch_cpu", "c10"]

    [[tool.hatch.build.hooks.neuron-extension.extensions]]
    name = "_C"                                 # -> _C.cpython-311-x86_64-linux-gnu.so
    sources = ["csrc/python/*.cpp"]
    links = ["torch", "torch_cpu", "c10", "torch_python", "torch_neuronx"]

Reading torch's headers takes longer than compiling most files that include them: `units` reads them that many times.
The sources of a unit share it, names in anonymous namespaces included.

A name in `links` is a library of the same project, `torch_neuronx` (the installed core), or one that torch ships.
"""

import enum
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .errors import BuildConfigError

_HOOK_NAMES = ("neuron-extension", "custom")
_TARGET_KEYS = {"name", "output", "sources", "generated", "units", "include-dirs", "defines", "links"}


class TargetKind(enum.Enum):
    """What a target links into."""

    LIBRARY = "library"
    EXTENSION = "extension"


@dataclass(frozen=True)
class Target:
    """One shared object: `output` is relative to the package, without suffix for an extension."""

    kind: TargetKind
    name: str
    output: PurePosixPath
    sources: tuple[str, ...]
    generated: tuple[str, ...]
    units: int | None
    include_dirs: tuple[str, ...]
    defines: tuple[str, ...]
    links: tuple[str, ...]


@dataclass(frozen=True)
class Project:
    """A distribution with C++ sources: its root, its import package and its targets, libraries first."""

    root: Path
    name: str
    requirements: tuple[str, ...]
    package: PurePosixPath
    targets: tuple[Target, ...]
    generate: PurePosixPath | None
    headers: tuple[str, ...]

    @property
    def import_name(self) -> str:
        """Name the package is imported by."""
        return self.package.name

    @property
    def package_dir(self) -> Path:
        """Folder of the import package in the source tree."""
        return self.root / self.package


def load_project(root: Path) -> Project:
    """Read `root/pyproject.toml`; raises BuildConfigError when it is absent or has no table for the hook."""
    path = root / "pyproject.toml"
    if not path.is_file():
        raise BuildConfigError(f"{root} has no pyproject.toml: name the folder of a distribution.")
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    hooks = document.get("tool", {}).get("hatch", {}).get("build", {}).get("hooks", {})
    table = next((hooks[name] for name in _HOOK_NAMES if name in hooks), None)
    if table is None:
        raise BuildConfigError(f"{path} has no table [tool.hatch.build.hooks.neuron-extension]: nothing to compile.")
    metadata = document.get("project", {})
    return parse_project(root, metadata.get("name", root.name), metadata.get("dependencies", []), table)


def parse_project(root: Path, name: str, requirements: list[str], table: Mapping[str, Any]) -> Project:
    """Check the hook's table; raises BuildConfigError naming the key that is missing, unknown or of the wrong type."""
    table = {key: value for key, value in table.items() if key not in ("path", "dependencies", "enable-by-default")}
    known = {"package", "generate", "headers", "libraries", "extensions"}
    _refuse_unknown(table, known, "the neuron-extension table")
    targets = tuple(
        _target(kind, entry)
        for kind, key in ((TargetKind.LIBRARY, "libraries"), (TargetKind.EXTENSION, "extensions"))
        for entry in _list(table, key, dict, "the neuron-extension table")
    )
    if not targets:
        raise BuildConfigError("the neuron-extension table lists neither `libraries` nor `extensions`.")
    generate = table.get("generate")
    return Project(
        root=root.resolve(),
        name=name,
        requirements=tuple(requirements),
        package=PurePosixPath(_text(table, "package", "the neuron-extension table")),
        targets=targets,
        generate=None if generate is None else PurePosixPath(generate),
        headers=tuple(_list(table, "headers", str, "the neuron-extension table")),
    )


def _target(kind: TargetKind, entry: Mapping[str, Any]) -> Target:
    where = f"an entry of `{'libraries' if kind is TargetKind.LIBRARY else 'extensions'}`"
    _refuse_unknown(entry, _TARGET_KEYS, where)
    name = _text(entry, "name", where)
    default = f"lib/lib{name}.so" if kind is TargetKind.LIBRARY else name
    return Target(
        kind=kind,
        name=name,
        output=PurePosixPath(entry.get("output", default)),
        sources=tuple(_list(entry, "sources", str, where)),
        generated=tuple(_list(entry, "generated", str, where)),
        units=_count(entry, "units", where),
        include_dirs=tuple(_list(entry, "include-dirs", str, where)),
        defines=tuple(_list(entry, "defines", str, where)),
        links=tuple(_list(entry, "links", str, where)),
    )


def _refuse_unknown(table: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise BuildConfigError(f"{where} has the unknown key `{unknown[0]}`; known are {', '.join(sorted(known))}.")


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str):
        raise BuildConfigError(f"{where} needs `{key}` as a string, not {value!r}.")
    return value


def _count(table: Mapping[str, Any], key: str, where: str) -> int | None:
    value = table.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise BuildConfigError(f"{where} needs `{key}` as a positive integer, not {value!r}.")


def _list(table: Mapping[str, Any], key: str, item: type, where: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, item) for entry in value):
        raise BuildConfigError(f"{where} needs `{key}` as a list of {item.__name__}, not {value!r}.")
    return value
