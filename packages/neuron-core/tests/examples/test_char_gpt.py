"""The example trains, saves, resumes and compares, through its own command line."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLE = Path(__file__).parents[4] / "examples" / "char_gpt.py"
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "16", "--batch", "4", "--sample", "8"]


@pytest.fixture(scope="module")
def char_gpt() -> ModuleType:
    spec = importlib.util.spec_from_file_location("char_gpt", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(char_gpt: ModuleType, tmp_path: Path, device: str) -> None:
    whole, halves = str(tmp_path / "whole.pt"), str(tmp_path / "halves.pt")
    common = [*SMALL, "--device", device]
    assert char_gpt.main([*common, "--steps", "6", "--checkpoint", whole]) == 0
    assert char_gpt.main([*common, "--steps", "3", "--checkpoint", halves]) == 0
    assert char_gpt.main([*common, "--steps", "6", "--checkpoint", halves, "--resume"]) == 0
    one, two = (torch.load(path, map_location="cpu", weights_only=True) for path in (whole, halves))
    assert len(one["losses"]) == 6
    assert one["losses"] == two["losses"]
    for name, parameter in one["model"].items():
        assert torch.equal(parameter, two["model"][name]), name


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_mixed_precision_learns(char_gpt: ModuleType, tmp_path: Path, device: str) -> None:
    saved = tmp_path / "amp.pt"
    arguments = [*SMALL, "--device", device, "--amp", "--steps", "60", "--checkpoint", str(saved)]
    assert char_gpt.main(arguments) == 0
    losses = torch.load(saved, weights_only=True, map_location="cpu")["losses"]
    assert losses[-1] < losses[0] - 0.3


def test_a_checkpoint_of_another_model_is_refused(char_gpt: ModuleType, tmp_path: Path) -> None:
    saved = str(tmp_path / "small.pt")
    common = [*SMALL, "--device", "cpu", "--checkpoint", saved]
    char_gpt.main([*common, "--steps", "1"])
    with pytest.raises(SystemExit, match=r"holds a model of .*this run asks for"):
        char_gpt.main([*common, "--steps", "2", "--resume", "--width", "64"])


@pytest.mark.skipif(
    importlib.util.find_spec("torch_neuronx_compile") is None, reason="the comparison needs torch-neuronx[compile]"
)
def test_the_three_ways_agree(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--compare", "--steps", "10", *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("cpu eager", "neuron eager", "neuron compiled"):
        assert row in done.stdout


def test_a_comparison_that_differs_fails(char_gpt: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another tolerance than the shipped one, below what two orders of summation can agree to: the exit code tells."""
    monkeypatch.setattr(char_gpt, "TOLERANCE", -1.0)
    ways = ["--compare", "--device", "cpu", "--steps", "2", *SMALL]
    monkeypatch.setattr(char_gpt.torch, "compile", lambda model, backend: model)
    assert char_gpt.main(ways) == 1
