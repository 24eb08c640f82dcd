"""A package of kernels, installed as a user installs one, is found by its entry point and uses hooks only."""

import shutil
from collections.abc import Callable
from pathlib import Path

from environments import Environment

EXAMPLE = Path(__file__).resolve().parents[2] / "packages" / "neuron-nki" / "examples" / "kernel_package"


def test_the_example_works_in_an_environment_of_its_own(
    new_environment: Callable[..., Environment], tmp_path: Path
) -> None:
    environment = new_environment("kernels", "torch_neuronx", "[compile,nki]")
    source = tmp_path / "kernel_package"
    shutil.copytree(EXAMPLE, source)
    environment.pip("install", "--quiet", "hatchling", "pytest")
    environment.pip("install", "--quiet", "--no-build-isolation", "--no-deps", str(source))
    assert "example-kernels" in environment.run("torch-neuronx", "plugins", "--json").stdout
    environment.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(source / "tests"))
