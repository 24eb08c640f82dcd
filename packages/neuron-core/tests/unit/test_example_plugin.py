"""Plugins as third parties ship them: built from a pyproject, installed into a folder, found by a fresh process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "plugin"

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "3.1"

[project.entry-points."torch_neuronx.plugins"]
{plugin} = "{module}"

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]
"""

CLASHING = """
import dataclasses
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.targets import TRN2

@hookimpl
def torch_neuronx_register_targets():
    return [dataclasses.replace(TRN2, name="clash")]
"""


def package(folder: Path, name: str, plugin: str, source: str) -> Path:
    """Write the source tree of a distribution whose one module is a plugin."""
    module = name.replace("-", "_")
    folder = folder / name
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PYPROJECT.format(name=name, plugin=plugin, module=module))
    (folder / f"{module}.py").write_text(source)
    return folder


def install(target: Path, *sources: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), *map(str, sources)], check=True, timeout=300)


class Environment:
    """A fresh process that sees this one's packages, and those installed into a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.target), *filter(None, sys.path)])
        environ = os.environ | {"PYTHONPATH": path} | variables
        return subprocess.run(
            [sys.executable, *command], env=environ, check=False, capture_output=True, text=True, timeout=120
        )

    def plugins(self, **variables: str) -> tuple[dict[str, dict[str, Any]], list[str], int]:
        done = self.run("-m", "torch_neuronx.cli", "plugins", "--json", **variables)
        answer = json.loads(done.stdout)
        return {plugin["name"]: plugin for plugin in answer["plugins"]}, answer["conflicts"], done.returncode


@pytest.fixture(scope="module")
def with_example(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    target = tmp_path_factory.mktemp("site")
    install(target, EXAMPLE)
    return Environment(target)


def test_the_example_is_discovered(with_example: Environment) -> None:
    plugins, conflicts, code = with_example.plugins()
    assert (conflicts, code) == ([], 0)
    lab = plugins["lab"]
    assert (lab["distribution"], lab["version"], lab["state"]) == ("neuron-lab", "0.1.0", "loaded")
    assert lab["hooks"] == ["torch_neuronx_observe", "torch_neuronx_register_targets"]


def test_its_target_can_be_chosen(with_example: Environment) -> None:
    show = "from torch_neuronx.targets import core_layout; print(core_layout().hbm_bytes_per_core)"
    done = with_example.run("-c", show, NEURON_PLATFORM_TARGET_OVERRIDE="trn2-half")
    assert done.stdout.strip() == str(12 * 2**30)
    refused = with_example.run(
        "-c", show, NEURON_PLATFORM_TARGET_OVERRIDE="trn2-half", TORCH_NEURONX_DISABLE_PLUGINS="neuron-lab"
    )
    assert "ConfigurationError: There is no target 'trn2-half'" in refused.stderr


def test_its_observer_reports(with_example: Environment) -> None:
    program = (
        "from torch_neuronx import plugins; from torch_neuronx.events import OpFellBack\n"
        "plugins.notify(OpFellBack('aten::complex', 'no complex', calls=3))"
    )
    assert "neuron-lab: aten::complex ran on the CPU, 3 calls" in with_example.run("-c", program).stderr


def test_its_own_tests_pass(with_example: Environment) -> None:
    ours = ["-p", "no:cacheprovider", "-c", str(EXAMPLE / "pyproject.toml")]
    done = with_example.run("-m", "pytest", "-q", *ours, str(EXAMPLE / "tests"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_that_raises_at_import_is_named_and_skipped(with_example: Environment, tmp_path: Path) -> None:
    install(
        tmp_path / "site", EXAMPLE, package(tmp_path, "broken-plugin", "broken", "raise RuntimeError('out of order')")
    )
    environment = Environment(tmp_path / "site")
    plugins, conflicts, code = environment.plugins()
    assert (conflicts, code) == ([], 0)
    assert plugins["broken"]["state"] == "skipped"
    assert plugins["broken"]["reason"] == "RuntimeError: out of order"
    assert plugins["lab"]["state"] == "loaded"
    done = environment.run("-c", "from torch_neuronx import plugins; print(*plugins.manager().targets())")
    assert "trn2-half" in done.stdout
    assert done.stderr.count("The plugin 'broken' (broken-plugin 3.1) was skipped: RuntimeError: out of order") == 1
    assert done.returncode == 0


def test_two_that_claim_one_name_give_a_clear_error(tmp_path: Path) -> None:
    trees = [package(tmp_path, f"lab-{letter}", f"plugin-{letter}", CLASHING) for letter in "ab"]
    install(tmp_path / "site", *trees)
    environment = Environment(tmp_path / "site")
    plugins, conflicts, code = environment.plugins()
    assert code == 1
    assert len(conflicts) == 1
    for words in ("a target named 'clash'", "(lab-a 3.1)", "(lab-b 3.1)", "TORCH_NEURONX_DISABLE_PLUGINS=plugin-b"):
        assert words in conflicts[0]
    assert {plugins["plugin-a"]["state"], plugins["plugin-b"]["state"]} == {"loaded"}
    done = environment.run("-c", "from torch_neuronx.targets import core_layout; core_layout()")
    assert "DuplicatePluginNameError" in done.stderr
    assert environment.plugins(TORCH_NEURONX_DISABLE_PLUGINS="plugin-b")[2] == 0
