"""The build, step by step: tools, generated sources, ninja, headers, build facts; then into a wheel or the tree."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import BuildConfigError, CompileFailedError
from .ninja_file import Layout, output_path, render, translation_units
from .project import Project
from .toolchain import Toolchain, child_environment, find_ninja, find_toolchain

_BUILD_INFO = '''"""What the compiled part of `{package}` was built with and against; written by its build."""

TORCH_VERSION = {torch!r}
TORCH_CXX11_ABI = {abi!r}
PYTHON_TAG = {python!r}
COMPILER = {compiler!r}
CORE_VERSION = {core!r}
'''


@dataclass(frozen=True)
class Built:
    """A finished build: every file lies under `stage` as it will lie in the import package."""

    project: Project
    build_dir: Path
    stage: Path
    files: tuple[Path, ...]

    def in_place(self, file: Path) -> Path:
        """Where a file of `stage` belongs in the source tree."""
        return self.project.package_dir / file.relative_to(self.stage)


def build(project: Project) -> Built:
    """Compile what changed since the last build and lay out the outputs; raises BuildError in one sentence."""
    needs_core = project.import_name != "torch_neuronx" and any(
        "torch_neuronx" in target.links for target in project.targets
    )
    toolchain = find_toolchain(project.name, project.requirements, needs_core=needs_core)
    # The prefix is part of the name: two environments with the same torch do not undo each other's objects.
    prefix = hashlib.sha256(f"{sys.prefix}{toolchain.torch.include_dirs}".encode()).hexdigest()[:8]
    layout = Layout(project.root / "build" / f"{toolchain.tag}-{prefix}")
    layout.build_dir.mkdir(parents=True, exist_ok=True)
    with _locked(layout.build_dir):
        _generate(project, layout)
        _mirror(layout.units, translation_units(project, layout))
        _write_if_changed(layout.ninja_file, render(project, toolchain, layout).encode())
        _run_ninja(project, toolchain, layout)
        files = _stage(project, toolchain, layout)
    return Built(project, layout.build_dir, layout.stage, tuple(files))


def install_in_place(built: Built) -> list[Path]:
    """Put the outputs into the source tree's package, replacing only what differs; returns the files written.

    A file is replaced by renaming, so that a process that has the old one mapped keeps it.
    """
    outputs = {built.in_place(file): file for file in built.files}
    for stale in (built.project.package_dir / "include").rglob("*.h"):
        if stale not in outputs:
            stale.unlink()
    written = []
    for target, file in outputs.items():
        if _write_if_changed(target, file.read_bytes(), mode=file.stat().st_mode):
            written.append(target)
    return written


def write_compile_commands(built: Built) -> Path:
    """Write `compile_commands.json` beside the project's `pyproject.toml`, for editors."""
    ninja = find_ninja(built.project.name)
    result = subprocess.run(
        [ninja, "-C", str(built.build_dir), "-t", "compdb"], capture_output=True, text=True, check=True
    )
    path = built.project.root / "compile_commands.json"
    path.write_text(result.stdout, encoding="utf-8")
    return path


def clean(project: Project) -> None:
    """Remove objects of every torch; outputs in the source tree stay."""
    shutil.rmtree(project.root / "build", ignore_errors=True)


@contextlib.contextmanager
def _locked(build_dir: Path) -> Iterator[None]:
    """Hold the folder: two builds at once would write the same objects."""
    with (build_dir / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _generate(project: Project, layout: Layout) -> None:
    """Run the generator and take over what changed, so that unchanged sources are not compiled again."""
    if project.generate is None:
        return
    script = project.root / project.generate
    if not script.is_file():
        raise BuildConfigError(f"the generator {script} of {project.name} does not exist.")
    with tempfile.TemporaryDirectory(dir=layout.build_dir, prefix="generated-") as folder:
        command = [sys.executable, str(script), "--output", folder]
        result = subprocess.run(command, env=child_environment(), stdout=sys.stderr.fileno(), check=False)
        if result.returncode != 0:
            raise CompileFailedError(f"{project.name}: the generator {project.generate} failed: see above.")
        fresh = {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
    _mirror(layout.generated, fresh)


def _run_ninja(project: Project, toolchain: Toolchain, layout: Layout) -> None:
    command = [toolchain.ninja, "-C", str(layout.build_dir)]
    jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
    command += ["-j", jobs]
    result = subprocess.run(command, stdout=sys.stderr.fileno(), check=False)
    if result.returncode != 0:
        compiler = toolchain.compiler_version
        raise CompileFailedError(f"{project.name} did not compile with {compiler}: the first error is above.")


def _stage(project: Project, toolchain: Toolchain, layout: Layout) -> list[Path]:
    """Headers and build facts beside the shared objects that ninja linked."""
    files = [layout.stage / output_path(target) for target in project.targets]
    if project.headers:
        include = layout.stage / "include" / project.import_name
        headers = _exported_headers(project)
        _mirror(include, {Path(name): path.read_bytes() for name, path in headers.items()})
        files += sorted(include / name for name in headers)
    text = _BUILD_INFO.format(
        package=project.import_name,
        torch=toolchain.torch.version,
        abi=toolchain.torch.cxx11_abi,
        python=sys.implementation.cache_tag,
        compiler=toolchain.compiler_version,
        core=None if toolchain.core is None else toolchain.core.version,
    )
    info = layout.stage / "_build_info.py"
    _write_if_changed(info, text.encode())
    return [*files, info]


def _exported_headers(project: Project) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for pattern in project.headers:
        matches = sorted(project.root.glob(pattern))
        if not matches:
            raise BuildConfigError(f"no header of {project.name} matches `{pattern}` in {project.root}.")
        for path in matches:
            if found.setdefault(path.name, path) != path:
                raise BuildConfigError(
                    f"{project.name} exports two headers named {path.name}: {found[path.name]}, {path}."
                )
    return found


def _mirror(folder: Path, content: dict[Path, bytes]) -> None:
    """Make `folder` hold exactly `content`, leaving equal files untouched."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.is_file() and path.relative_to(folder) not in content:
            path.unlink()
    for relative, data in content.items():
        _write_if_changed(folder / relative, data)


def _write_if_changed(path: Path, data: bytes, mode: int = 0o644) -> bool:
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.chmod(mode & 0o777)
    temporary.replace(path)
    return True
