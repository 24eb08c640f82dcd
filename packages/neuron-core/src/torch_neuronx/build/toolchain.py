"""What this machine compiles with: the C++ compiler, ninja, the installed torch and the installed core."""

import importlib.metadata
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from .errors import BuildConfigError, CompilerMissingError, NinjaMissingError, TorchMismatchError, TorchMissingError

# Runs in a child: importing torch costs seconds and, with backends installed, would load what is about to be replaced.
_PROBE = """
import json, torch
from torch.utils import cpp_extension
print(json.dumps({
    "version": str(torch.__version__),
    "cxx11_abi": bool(torch._C._GLIBCXX_USE_CXX11_ABI),
    "include_dirs": cpp_extension.include_paths(),
    "library_dirs": cpp_extension.library_paths(),
}))
"""


@dataclass(frozen=True)
class Torch:
    """The installed torch as far as a compiler must know it."""

    version: str
    cxx11_abi: bool
    include_dirs: tuple[str, ...]
    library_dirs: tuple[str, ...]


@dataclass(frozen=True)
class Core:
    """The installed torch-neuronx that another distribution links against."""

    version: str
    torch_version: str
    package_dir: Path


@dataclass(frozen=True)
class Toolchain:
    """Everything outside the project that its objects depend on."""

    compiler: tuple[str, ...]
    compiler_version: str
    ninja: str
    torch: Torch
    core: Core | None

    @property
    def tag(self) -> str:
        """Folder name that keeps objects of different torches, ABIs and interpreters apart."""
        abi = "cxx11" if self.torch.cxx11_abi else "cxx03"
        return f"{self.torch.version}-{abi}-{sys.implementation.cache_tag}"


def find_toolchain(name: str, requirements: tuple[str, ...], *, needs_core: bool) -> Toolchain:
    """Look for all tools; `requirements` are the distribution's own, and the torch found must satisfy them.

    Raises CompilerMissingError, NinjaMissingError, TorchMissingError or TorchMismatchError.
    """
    torch = probe_torch(name)
    check_requirements(name, requirements, {"torch": torch.version})
    compiler, compiler_version = find_compiler(name)
    ninja = find_ninja(name)
    core = find_core(name, torch) if needs_core else None
    if core is not None:
        check_requirements(name, requirements, {"torch-neuronx": core.version})
    return Toolchain(compiler, compiler_version, ninja, torch, core)


def child_environment() -> dict[str, str]:
    """Environment of the build's own children: no device backend is loaded into them."""
    return {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def probe_torch(name: str) -> Torch:
    """Ask the installed torch, in a child process, for its version, ABI and folders."""
    result = subprocess.run(
        [sys.executable, "-c", _PROBE], env=child_environment(), capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no output"])[-1]
        raise TorchMissingError(
            f"{name} is compiled against the torch of the environment that builds it, and torch cannot be imported"
            f" there ({reason}): install torch first and build with `pip install --no-build-isolation`."
        )
    facts = json.loads(result.stdout.splitlines()[-1])
    return Torch(facts["version"], facts["cxx11_abi"], tuple(facts["include_dirs"]), tuple(facts["library_dirs"]))


def check_requirements(name: str, requirements: tuple[str, ...], installed: dict[str, str]) -> None:
    """Raise TorchMismatchError when an installed version is outside what the distribution declares."""
    for requirement in map(Requirement, requirements):
        version = installed.get(requirement.name.lower())
        if version is not None and not requirement.specifier.contains(version, prereleases=True):
            raise TorchMismatchError(
                f"{name} is built for {requirement.name} {requirement.specifier}, but {requirement.name} {version} is"
                f" installed: run `pip install '{requirement.name}{requirement.specifier}'`, or take the release of"
                f" {name} made for {version.split('+')[0]}."
            )


def find_compiler(name: str) -> tuple[tuple[str, ...], str]:
    """Command and version of the C++ compiler: `CXX` if set, else the first of c++, g++ and clang++ on PATH."""
    chosen = os.environ.get("CXX")
    candidates = [tuple(shlex.split(chosen))] if chosen else [("g++",), ("c++",), ("clang++",)]
    for command in candidates:
        if shutil.which(command[0]) is None:
            continue
        result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        if result.returncode == 0 and result.stdout:
            return command, result.stdout.splitlines()[0].strip()
    tried = ", ".join(" ".join(command) for command in candidates)
    raise CompilerMissingError(
        f"{name} needs a C++20 compiler and none was found (tried {tried}): install g++ 11 or newer,"
        " or set CXX to the compiler to use."
    )


def find_ninja(name: str) -> str:
    """Path of the ninja that belongs to this Python."""
    if importlib.util.find_spec("ninja") is None:
        raise NinjaMissingError(f"{name} is compiled with ninja, which this Python does not have: `pip install ninja`.")
    import ninja

    return str(Path(ninja.BIN_DIR) / "ninja")


def find_core(name: str, torch: Torch) -> Core:
    """The installed torch-neuronx, which must have been built against the torch that is installed."""
    package_dir = module_dir("torch_neuronx", f"{name} links against torch-neuronx")
    info = package_dir / "_build_info.py"
    if not info.is_file():
        raise TorchMismatchError(
            f"{name} links against torch-neuronx, whose compiled part is missing from {package_dir}:"
            " build it with `python -m torch_neuronx.build`, or reinstall torch-neuronx."
        )
    values: dict[str, object] = {}
    exec(compile(info.read_text(encoding="utf-8"), str(info), "exec"), values)
    built_for = str(values["TORCH_VERSION"])
    if built_for != torch.version:
        raise TorchMismatchError(
            f"{name} links against torch-neuronx, which was compiled against torch {built_for} while torch"
            f" {torch.version} is installed: reinstall torch-neuronx first."
        )
    return Core(importlib.metadata.version("torch-neuronx"), built_for, package_dir)


def module_dir(module: str, why: str) -> Path:
    """Folder of an installed package, without importing it; raises BuildConfigError when it is not installed."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise BuildConfigError(f"{why}, and the package `{module}` is not installed in the environment that builds.")
    return Path(spec.submodule_search_locations[0])


def python_include_dirs() -> tuple[str, ...]:
    """Where Python.h is."""
    return tuple(dict.fromkeys((sysconfig.get_path("include"), sysconfig.get_path("platinclude"))))
