"""What `torch-neuronx[compile,dist]` and `torch-neuronx` alone can do, and what they say of what they cannot."""

import json

import programs
from environments import Environment


def entry_points(environment: Environment) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(environment.run("python", "-c", programs.ENTRY_POINTS).stdout)
    return found


def test_complete_runs_eager_compiled_and_distributed(complete: Environment) -> None:
    complete.pip("check")
    assert complete.run("python", "-c", programs.EAGER).stdout.strip() == "[[5.0, 14.0], [14.0, 50.0]]"
    assert complete.run("python", "-c", programs.COMPILE).stdout.strip() == "compiled"
    assert complete.run("python", "-c", programs.DISTRIBUTED).stdout.strip() == "[1.0, 1.0, 1.0, 1.0]"


def test_complete_has_the_entry_points_of_its_parts(complete: Environment) -> None:
    found = entry_points(complete)
    assert found["torch.backends"] == ["torch_neuronx", "torch_neuronx_dist"]
    assert found["torch_dynamo_backends"] == ["neuron", "neuron"]
    assert "compile" in found["torch_neuronx.plugins"]
    listed = json.loads(complete.run("torch-neuronx", "plugins", "--json").stdout)["plugins"]
    assert {"compile"} <= {plugin["name"] for plugin in listed if plugin["state"] == "loaded"}


def test_alone_runs_eager(alone: Environment) -> None:
    alone.pip("check")
    assert alone.run("python", "-c", programs.EAGER).stdout.strip() == "[[5.0, 14.0], [14.0, 50.0]]"
    alone.run("torch-neuronx", "doctor", "--verify")


def test_alone_names_the_extra_to_compile(alone: Environment) -> None:
    result = alone.run("python", "-c", programs.COMPILE, check=False)
    assert result.returncode != 0
    assert "pip install 'torch-neuronx[compile]'" in result.stderr


def test_alone_names_the_extra_for_process_groups(alone: Environment) -> None:
    result = alone.run("python", "-c", programs.DISTRIBUTED, check=False)
    assert result.returncode != 0
    assert "pip install 'torch-neuronx[dist]'" in result.stderr


def test_alone_compiles_on_the_cpu_as_if_it_were_not_there(alone: Environment) -> None:
    program = 'import torch; print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())'
    assert alone.run("python", "-c", program).stdout.strip() == "2.0"


def test_uninstalling_an_extra_removes_its_entry_points(complete: Environment, distributions: str) -> None:
    before = entry_points(complete)
    complete.pip("uninstall", "--yes", "torch-neuronx-compile", "torch-neuronx-dist")
    try:
        after = entry_points(complete)
        assert after == {
            "torch.backends": ["torch_neuronx"],
            "torch_dynamo_backends": ["neuron"],
            "torch_neuronx.plugins": [],
        }
        result = complete.run("python", "-c", programs.COMPILE, check=False)
        assert "pip install 'torch-neuronx[compile]'" in result.stderr
        assert complete.run("python", "-c", programs.EAGER).returncode == 0
    finally:
        folder = ("--no-index", "--no-deps", "--find-links", str(distributions))
        complete.pip("install", "--quiet", *folder, "torch-neuronx-compile", "torch-neuronx-dist")
    assert entry_points(complete) == before


def test_the_cache_works_without_torch(cache_alone: Environment) -> None:
    program = (
        "import importlib.util, sys, torch_neuronx_cache;"
        "assert importlib.util.find_spec('torch') is None; print(torch_neuronx_cache.__name__)"
    )
    assert cache_alone.run("python", "-c", program).stdout.strip() == "torch_neuronx_cache"
    cache_alone.pip("check")
