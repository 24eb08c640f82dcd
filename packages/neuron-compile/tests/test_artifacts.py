"""Files about a graph, kept on demand; the NEFF among them is a real one."""

import itertools
from pathlib import Path

import pytest
import torch

from torch_neuronx import neff
from torch_neuronx.errors import NEFFCompilationError, NEFFExecutionError
from torch_neuronx.runtimes.select import select_runtime
from torch_neuronx_compile.compilers.emulator.compiler import EmulatorCompiler

from .helpers import compiled

BIASES = itertools.count(1)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    bias = next(BIASES)  # a program that this process has loaded before leaves no second NEFF
    compiled(lambda x: x * 1.75 + bias, options={"model_name": "kept"})(torch.ones(7, device="neuron"))
    (found,) = tmp_path.glob("kept_*")
    return found


def test_every_stage_leaves_a_file(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"graph.txt", "program.stablehlo", "program.neff"}
    assert "aten.mul" in (folder / "graph.txt").read_text()


def test_nothing_is_kept_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "none"))
    compiled(lambda x: x + 1)(torch.ones(2, device="neuron"))
    assert not (tmp_path / "none").exists()


def test_the_neff_runs_without_the_graph(folder: Path) -> None:
    executable = select_runtime().load((folder / "program.neff").read_bytes(), 0)
    inputs, outputs = executable.tensors
    assert (inputs.shape, inputs.dtype, inputs.nbytes) == ((7,), "float32", 28)
    assert (outputs.shape, outputs.dtype) == ((7,), "float32")
    (result,) = executable([torch.full((7,), 2.0, device="neuron")])
    assert torch.equal(result.cpu(), torch.full((7,), 3.5 + (next(BIASES) - 1)))
    executable.unload()
    executable.unload()
    with pytest.raises(NEFFExecutionError, match="unloaded"):
        executable([torch.ones(7, device="neuron")])


def test_the_program_compiles_again_to_the_same_tensors(folder: Path) -> None:
    from torch_neuronx.compilers import CompileRequest

    compiler = EmulatorCompiler()
    request = CompileRequest((folder / "program.stablehlo").read_bytes(), "again", "trn2", 2, {})
    again = neff.unpack(compiler.compile(request))
    assert again.header.made_for == "emulator"
    assert again.files["tensors.json"] == neff.unpack((folder / "program.neff").read_bytes()).files["tensors.json"]


def test_a_program_that_is_none_is_refused() -> None:
    from torch_neuronx.compilers import CompileRequest

    with pytest.raises(NEFFCompilationError):
        EmulatorCompiler().compile(CompileRequest(b"junk", "junk", "trn2", 2, {}))


def test_a_neff_with_another_executable_is_refused(folder: Path) -> None:
    files = dict(neff.unpack((folder / "program.neff").read_bytes()).files)
    for broken in (files | {"xla_cpu_executable": b"junk"}, {"program.stablehlo": b""}):
        packed = neff.pack(broken, name="broken", made_for="emulator", version="0")
        with pytest.raises(NEFFExecutionError):
            select_runtime().load(packed, 0)
