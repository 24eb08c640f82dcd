"""A program that another process compiled is loaded, and only then."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx import installed

pytestmark = pytest.mark.skipif(
    installed.version("torch-neuronx-cache") is None,
    reason="the store is torch-neuronx-cache's; the rest of this folder shows that compiling works without it",
)

MODEL = """
import json, sys
import torch
from torch_neuronx import metrics
from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics, set_model_name

metrics.set_enabled(True)
set_model_name(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, WIDTH)).to("neuron")
compiled = torch.compile(model, backend="neuron")
x = torch.randn(4, 8, device="neuron")
loss = compiled(x).square().sum()
loss.backward()
torch.testing.assert_close(loss, model(x).square().sum())
print(json.dumps({
    "compilations": metrics.get_counter_value("CompilationCache.TotalCompilations") or 0,
    "hits": metrics.get_counter_value("CompilationCache.PersistentHits") or 0,
    "corrupt": metrics.get_counter_value("CompilationCache.Corrupt") or 0,
    "compile_us": [m.torch_neuronx_compile_us for m in get_dynamo_metrics()],
}))
"""


def run(home: Path, name: str = "model", *, width: int = 4, **variables: str) -> dict[str, Any]:
    """Train one step of a model whose script lies in ``home``, in a process of its own."""
    home.mkdir(parents=True, exist_ok=True)
    script = home / f"{name}.py"
    script.write_text("\n" * len(name) + MODEL.replace("WIDTH", str(width)))
    # PyTorch's own cache would bring the NEFFs along.
    environment = os.environ | {"HOME": str(home), "TORCHINDUCTOR_AUTOGRAD_CACHE": "0", **variables}
    done = subprocess.run(
        [sys.executable, str(script), name], cwd=home, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the two programs of the model, which no test changes."""
    folder = tmp_path_factory.mktemp("compiled once")
    stores = {f"TORCH_NEURONX_{name}_CACHE_DIR": str(folder / name.lower()) for name in ("NEFF", "HLO")}
    assert run(folder / "home", **stores)["compilations"] == 2  # forward and backward
    return folder / "neff"


@pytest.fixture
def stored(compiled_once: Path) -> Path:
    """The store of this test, a copy of what another process compiled."""
    folder = Path(os.environ["TORCH_NEURONX_NEFF_CACHE_DIR"])
    shutil.copytree(compiled_once, folder)
    return folder


def test_another_process_directory_name_and_home_hit(stored: Path, tmp_path: Path) -> None:
    again = run(tmp_path / "another home", "other_name")
    assert again == {"compilations": 0, "hits": 2, "corrupt": 0, "compile_us": [0, 0]}


def test_another_program_misses(stored: Path, tmp_path: Path) -> None:
    assert run(tmp_path, width=5)["compilations"] == 2


def test_another_target_misses(stored: Path, tmp_path: Path) -> None:
    assert run(tmp_path, NEURON_PLATFORM_TARGET_OVERRIDE="trn3")["compilations"] == 2


@pytest.mark.parametrize("variable", ["TORCH_NEURONX_NEFF_DISABLE_CACHE", "TORCH_NEURONX_DISABLE_NEFF_CACHE"])
def test_the_store_can_be_switched_off(stored: Path, tmp_path: Path, variable: str) -> None:
    assert run(tmp_path, **{variable: "1"})["compilations"] == 2


def test_a_damaged_entry_is_compiled_again(stored: Path, tmp_path: Path) -> None:
    entries = [path for path in stored.rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    again = run(tmp_path)
    assert (again["compilations"], again["hits"], again["corrupt"]) == (2, 0, 2)


def test_another_processor_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_neuronx_compile.compilers.emulator import host

    features = host.host_features()
    assert features.split() == [features.split()[0], *sorted(features.split()[1:])]
    lesser = tmp_path / "cpuinfo"
    lesser.write_text("processor : 0\nflags : sse2 avx\n")
    monkeypatch.setattr(host, "CPUINFO", lesser)
    assert host.host_features.__wrapped__().split()[1:] == ["avx", "sse2"]
