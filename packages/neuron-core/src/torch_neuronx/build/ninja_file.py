"""Turns a project and a toolchain into a `build.ninja`."""

import io
import os
import re
import shlex
import sysconfig
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from .errors import BuildConfigError
from .project import Project, Target, TargetKind
from .toolchain import Toolchain, module_dir, python_include_dirs

if TYPE_CHECKING:
    from ninja.ninja_syntax import Writer

_COMPILE_FLAGS = ("-std=c++20", "-O2", "-g0", "-fPIC", "-fvisibility=default", "-Wall", "-Wextra")
_MODULE = re.compile(r"^\{([A-Za-z_][A-Za-z0-9_.]*)\}")


@dataclass(frozen=True)
class Layout:
    """Folders of one build: objects, generated sources, and `stage`, which mirrors the import package."""

    build_dir: Path

    @property
    def generated(self) -> Path:
        """Sources written by the project's generator."""
        return self.build_dir / "generated"

    @property
    def objects(self) -> Path:
        """Object files, by target."""
        return self.build_dir / "objects"

    @property
    def units(self) -> Path:
        """Translation units that include several sources, by target."""
        return self.build_dir / "units"

    @property
    def stage(self) -> Path:
        """What will be put into the import package, at its place."""
        return self.build_dir / "stage"

    @property
    def ninja_file(self) -> Path:
        """The build file."""
        return self.build_dir / "build.ninja"


def output_path(target: Target) -> PurePosixPath:
    """Where a target's shared object lies inside the import package."""
    if target.kind is TargetKind.LIBRARY:
        return target.output
    return target.output.with_name(target.output.name + sysconfig.get_config_var("EXT_SUFFIX"))


def translation_units(project: Project, layout: Layout) -> dict[Path, bytes]:
    """What lies in `Layout.units`: one file per unit of each target that asks for them."""
    files = {}
    for target in project.targets:
        for name, members in _units(project, target).items():
            lines = [f'#include "{member}"\n' for member in members]
            files[Path(target.name) / name] = "".join(lines).encode()
    return files


def render(project: Project, toolchain: Toolchain, layout: Layout) -> str:
    """Text of the build file: one object per source and target, one link per target."""
    # Not at the top: a missing ninja is reported when tools are looked for, and nothing else here needs it.
    from ninja import ninja_syntax

    buffer = io.StringIO()
    writer = ninja_syntax.Writer(buffer, width=120)  # type: ignore[arg-type]  # its stub asks for a str, it writes to a file
    writer.variable("ninja_required_version", "1.5")
    writer.variable("cxx", shlex.join(toolchain.compiler))
    writer.rule(
        "compile",
        command="$cxx $flags -MMD -MF $out.d -c $in -o $out",
        depfile="$out.d",
        deps="gcc",
        description="compile $short",
    )
    writer.rule("link", command="$cxx -shared $in -o $out $flags", description="link $short")
    for target in project.targets:
        _write_target(writer, project, target, toolchain, layout)
    return buffer.getvalue()


def _write_target(writer: "Writer", project: Project, target: Target, toolchain: Toolchain, layout: Layout) -> None:
    flags = _compile_flags(project, target, toolchain, layout)
    objects = []
    for base, source_path in _sources(project, target, layout):
        relative = source_path.relative_to(base)
        folder = "." if base == project.root else base.name
        obj = str(layout.objects / target.name / folder / relative.with_suffix(".o"))
        writer.build(
            [obj],
            "compile",
            [str(source_path)],
            variables={"flags": _join(flags), "short": str(relative)},
        )
        objects.append(obj)
    output = output_path(target)
    link_flags, link_inputs = _link_flags(project, target, toolchain, layout)
    writer.build(
        [str(layout.stage / output)],
        "link",
        objects,
        implicit=[str(path) for path in link_inputs],
        variables={"flags": _join(link_flags), "short": output.name},
    )


def _sources(project: Project, target: Target, layout: Layout) -> list[tuple[Path, Path]]:
    """What is compiled, each with the folder that its name is told from."""
    units = [layout.units / target.name / name for name in _units(project, target)]
    found = [(layout.units, unit) for unit in units] or _matches(target, project.root, target.sources)
    return found + _matches(target, layout.generated, target.generated)


def _units(project: Project, target: Target) -> dict[str, list[Path]]:
    """The sources of each unit; none where every source is compiled by itself."""
    if target.units is None:
        return {}
    sources = [source for _, source in _matches(target, project.root, target.sources)]
    return {f"unit_{index}.cpp": sources[index :: target.units] for index in range(min(target.units, len(sources)))}


def _matches(target: Target, base: Path, patterns: tuple[str, ...]) -> list[tuple[Path, Path]]:
    found: list[tuple[Path, Path]] = []
    for pattern in patterns:
        matches = sorted(base.glob(pattern))
        if not matches:
            raise BuildConfigError(f"no source of `{target.name}` matches `{pattern}` in {base}.")
        found += [(base, match) for match in matches]
    return found


def _compile_flags(project: Project, target: Target, toolchain: Toolchain, layout: Layout) -> list[str]:
    own = [_resolve(project, entry) for entry in target.include_dirs]
    if project.generate is not None:
        own.append(str(layout.generated))
    system = list(toolchain.torch.include_dirs)
    if toolchain.core is not None:
        include = toolchain.core.package_dir / "include"
        system += [str(include), str(include / "torch_neuronx")]
    defines = [f"_GLIBCXX_USE_CXX11_ABI={int(toolchain.torch.cxx11_abi)}", *target.defines]
    if target.kind is TargetKind.EXTENSION:
        system += python_include_dirs()
        defines += [f"TORCH_EXTENSION_NAME={target.name}", "TORCH_API_INCLUDE_EXTENSION_H"]
    # Headers outside the project are system headers: their warnings are not ours to fix.
    flags = [*_COMPILE_FLAGS, *(f"-D{define}" for define in defines)]
    for entry in own:
        inside = Path(entry).is_relative_to(project.root)
        flags += ["-I" if inside else "-isystem", entry]
    for entry in system:
        flags += ["-isystem", entry]
    return flags + shlex.split(os.environ.get("CXXFLAGS", ""))


def _link_flags(project: Project, target: Target, toolchain: Toolchain, layout: Layout) -> tuple[list[str], list[Path]]:
    """Flags of one link, and the shared objects it must be redone for."""
    output = output_path(target)
    siblings = {other.name: other.output for other in project.targets if other.kind is TargetKind.LIBRARY}
    to_site = PurePosixPath(*[".."] * len(output.parts))
    flags: list[str] = []
    inputs: list[Path] = []
    rpaths: list[PurePosixPath] = []
    if target.kind is TargetKind.LIBRARY:
        # The loader finds a library that is already in the process by this name, wherever it came from.
        flags += [f"-Wl,-soname,{output.name}", "-Wl,-z,defs"]
    for link in target.links:
        if link in siblings:
            inputs.append(layout.stage / siblings[link])
            rpaths.append(PurePosixPath(os.path.relpath(siblings[link].parent, output.parent)))
        elif link == "torch_neuronx" and toolchain.core is not None:
            inputs.append(toolchain.core.package_dir / "lib" / "libtorch_neuronx.so")
            rpaths.append(to_site / "torch_neuronx" / "lib")
        else:
            flags.append(f"-l{link}")
    rpaths.append(to_site / "torch" / "lib")
    search = [f"-L{folder}" for folder in toolchain.torch.library_dirs]
    run_time = [f"-Wl,-rpath,$ORIGIN/{path}" for path in dict.fromkeys(rpaths)]
    own = shlex.split(os.environ.get("LDFLAGS", ""))
    return [*map(str, inputs), *search, *flags, *run_time, *own], inputs


def _resolve(project: Project, entry: str) -> str:
    match = _MODULE.match(entry)
    if match:
        return f"{module_dir(match[1], f'{project.name} includes headers from {entry}')}{entry[match.end() :]}"
    return str(project.root / entry)


def _join(flags: list[str]) -> str:
    return shlex.join(flags).replace("$", "$$")
