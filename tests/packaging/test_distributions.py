"""What is inside the wheels and source distributions."""

import ast
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("neuron-core", "neuron-compile", "neuron-dist", "neuron-nki", "neuron-cache")
COMPILED = ("neuron-core", "neuron-compile", "neuron-dist")
every_folder = pytest.mark.parametrize("folder", FOLDERS)


def project(folder: str) -> dict[str, Any]:
    text = (ROOT / "packages" / folder / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)["project"]
    return table


def import_name(folder: str) -> str:
    return str(project(folder)["name"]).replace("-", "_")


@pytest.fixture
def wheel(folder: str, distributions: Path) -> zipfile.ZipFile:
    (path,) = distributions.glob(f"{import_name(folder)}-[0-9]*.whl")
    return zipfile.ZipFile(path)


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


@every_folder
def test_wheel_has_types_license_and_every_module(folder: str, wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    package = import_name(folder)
    assert f"{package}/py.typed" in names
    assert metadata(wheel)["License-Expression"] == "Apache-2.0"
    (license_name,) = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    assert wheel.read(license_name) == (ROOT / "LICENSE").read_bytes()
    source = ROOT / "packages" / folder / "src"
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py")} - {f"{package}/_build_info.py"}
    assert modules <= names
    strangers = {name for name in names if not name.startswith((f"{package}/", f"{package}-"))}
    # what offers `import nki` in every process of the environment
    assert strangers == ({"nki_finder.py", "torch_neuronx_nki.pth"} if folder == "neuron-nki" else set())


@every_folder
def test_wheel_is_tagged_for_what_it_holds(folder: str, wheel: zipfile.ZipFile) -> None:
    tag = Path(str(wheel.filename)).stem.split("-", 2)[2]
    shared_objects = [name for name in wheel.namelist() if name.endswith(".so")]
    if folder in COMPILED:
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        assert tag.startswith(f"{python}-{python}-linux_")
        assert any("/_C." in name for name in shared_objects)
    else:
        assert tag == "py3-none-any"
        assert shared_objects == []


def test_core_wheel_has_what_others_build_against(distributions: Path) -> None:
    (path,) = distributions.glob("torch_neuronx-[0-9]*.whl")
    names = set(zipfile.ZipFile(path).namelist())
    headers = {header.name for header in (ROOT / "packages/neuron-core/csrc").glob("[ar]*/*.h")}
    assert {"torch_neuronx/lib/libtorch_neuronx.so", "torch_neuronx/_build_info.py"} <= names
    assert {f"torch_neuronx/include/torch_neuronx/{header}" for header in headers} <= names


def test_core_version_starts_with_its_torch(distributions: Path) -> None:
    core = project("neuron-core")
    minor = ".".join(core["version"].split(".")[:2])
    (torch,) = [Requirement(text) for text in core["dependencies"] if Requirement(text).name == "torch"]
    assert torch.specifier.contains(f"{minor}.0")
    for folder in ("neuron-compile", "neuron-dist", "neuron-nki"):
        assert f"torch-neuronx=={minor}.*" in project(folder)["dependencies"]


def test_extras_pin_compatible_versions() -> None:
    extras = project("neuron-core")["optional-dependencies"]
    versions = {project(folder)["name"]: project(folder)["version"] for folder in FOLDERS[1:]}
    assert set(extras) == {"compile", "dist", "nki", "cache", "all"}
    assert sorted(extras["all"]) == sorted(text for name in extras if name != "all" for text in extras[name])
    for requirement in map(Requirement, extras["all"]):
        (specifier,) = requirement.specifier
        assert specifier.operator == "~="
        assert requirement.specifier.contains(versions[requirement.name])


@every_folder
def test_source_distribution_has_all_sources(folder: str, distributions: Path) -> None:
    (path,) = distributions.glob(f"{import_name(folder)}-[0-9]*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    root = ROOT / "packages" / folder
    made = ("_build_info.py", "include", "lib", "__pycache__")
    for part in ("csrc", "src", "tests"):
        for file in (root / part).rglob("*"):
            relative = file.relative_to(root)
            if file.is_file() and file.suffix not in (".so", ".pyc") and not set(made) & set(relative.parts):
                assert str(relative) in names
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"} <= names


@every_folder
def test_changelog_has_the_version(folder: str) -> None:
    text = (ROOT / "packages" / folder / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {project(folder)['version']}" in text


@every_folder
def test_every_import_is_declared(folder: str) -> None:
    """A package that a dependency happens to bring is not ours to import."""
    table = project(folder)
    # The build hook runs inside hatchling, in an environment that the build requirements made.
    build = ["hatchling", "ninja"] if folder == "neuron-core" else []
    # Doors to the extras and test helpers say what to install when it is missing.
    optional = ["pytest", "hypothesis"]
    extras = [text for texts in table.get("optional-dependencies", {}).values() for text in texts]
    requirements = [*table["dependencies"], *extras, *build, *optional]
    declared = {canonicalize_name(Requirement(text).name) for text in requirements}
    distribution_of = packages_distributions()
    undeclared: dict[str, str] = {}
    for path in (ROOT / "packages" / folder / "src").rglob("*.py"):
        for module in imported_modules(path):
            if module in sys.stdlib_module_names or module == import_name(folder):
                continue
            owners = {canonicalize_name(owner) for owner in distribution_of.get(module, [module])}
            if not owners & declared:
                undeclared[module] = str(path.relative_to(ROOT))
    assert undeclared == {}


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found
