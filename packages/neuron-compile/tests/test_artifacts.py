"""Files about a graph, kept on demand; the NEFF among them is a real one."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from torch_neuronx import config, neff
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.errors import NEFFCompilationError, NEFFExecutionError
from torch_neuronx.runtimes.select import select_runtime
from torch_neuronx_compile.compilers.emulator.compiler import EmulatorCompiler
from torch_neuronx_compile.naming import get_rank

from .helpers import compiled

BIASES = itertools.count(1)


STAGES = {
    "fx_graphs": ".fx.txt",
    "raw": ".torch_raw.mlir",
    "stablehlo": ".stablehlo.mlir",
    "neff": ".neff",
}


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Compile one graph called `kept` and return the directory of its artifacts."""
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "root"))
    bias = next(BIASES)  # a program that this process has loaded before leaves no second NEFF
    compiled(lambda x: x * 1.75 + bias, options={"model_name": "kept"})(torch.ones(7, device="neuron"))
    return tmp_path / "root"


def artifact(root: Path, stage: str) -> Path:
    (found,) = (root / stage / f"proc_{get_rank()}").iterdir()
    return found


def test_every_stage_leaves_a_file(root: Path) -> None:
    assert {path.name for path in root.iterdir()} == STAGES.keys()
    stems = set()
    for stage, ending in STAGES.items():
        name = artifact(root, stage).name
        assert re.fullmatch(rf"kept_\d+_inference_0_\d{{8}}T\d+{re.escape(ending)}", name)
        stems.add(name.removesuffix(ending))
    assert len(stems) == 1
    assert "aten.mul" in artifact(root, "fx_graphs").read_text()
    assert "torch.aten.mul" in artifact(root, "raw").read_text()
    assert "stablehlo.multiply" in artifact(root, "stablehlo").read_text()


def test_folders_are_the_users_alone(root: Path) -> None:
    for path in (root, *(path for path in root.rglob("*") if path.is_dir())):
        assert path.stat().st_mode & 0o777 == 0o700


def scaled(x: Tensor) -> Tensor:
    bias = next(BIASES)
    scaled = x * bias  # line 2
    return torch.nn.functional.gelu(scaled)  # line 3


def test_the_lines_of_the_program_are_in_the_modules_and_not_in_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    function = scaled.__code__
    compiled(scaled)(torch.ones(3, device="neuron"))
    for stage in ("raw", "stablehlo"):
        text = artifact(tmp_path, stage).read_text()
        for line in (2, 3):
            assert f'"{__file__}":{function.co_firstlineno + line}' in text
    calls = [line for line in artifact(tmp_path, "stablehlo").read_text().splitlines() if "custom_call" in line]
    assert calls
    assert all("loc(#loc" in line and "loc(#loc)" not in line for line in calls)
    (packed,) = (neff.unpack(path.read_bytes()) for path in (tmp_path / "neff").rglob("*.neff"))
    assert __file__.encode() not in packed.files["program.stablehlo"]


PROGRAM = """
import os, sys, torch
from pathlib import Path
from torch_neuronx import config

compiled = torch.compile(lambda x: x * 3 + 2, backend="neuron")
assert compiled(torch.ones(2, device="neuron")).tolist() == [5.0, 5.0]
root = config.get(config.DEBUG_DIR)
print(root, root.stat().st_mode & 0o777 if root.exists() else "none")
print(*sorted(path.relative_to(root).parts[0] for path in root.rglob("*") if path.is_file()), flush=True)
if len(sys.argv) > 1 and os.fork() == 0:
    sys.exit()  # a forked child takes nothing away
elif len(sys.argv) > 1:
    os.wait()
    assert [path for path in root.rglob("*") if path.is_file()]
"""


def run(*arguments: str, **variables: str | None) -> list[str]:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_default_directory_is_new_and_closed() -> None:
    root, files = run(TORCH_NEURONX_DEBUG_DIR=None, TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS="1")
    folder = Path(root.split()[0])
    try:
        assert root.split()[1] == str(0o700)
        assert files.split() == sorted(STAGES)
        assert (folder / "neff").is_dir()
    finally:
        shutil.rmtree(folder)
    assert folder != config.get(config.DEBUG_DIR, {})  # this process's


def test_nothing_is_written_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_NEURONX_DEBUG_DIR")
    bias = next(BIASES)
    compiled(lambda x: x * 1.5 + bias)(torch.ones(2, device="neuron"))
    assert not config.get(config.DEBUG_DIR).exists()


def test_what_was_written_is_removed_at_exit_and_nothing_else(tmp_path: Path) -> None:
    named = tmp_path / "named"
    (named / "neff").mkdir(parents=True)
    (named / "neff" / "mine.txt").write_text("keep")
    _, files = run("fork", TORCH_NEURONX_DEBUG_DIR=str(named))
    assert files.split() == sorted([*STAGES, "neff"])
    assert [path.relative_to(named) for path in named.rglob("*")] == [Path("neff"), Path("neff/mine.txt")]


@pytest.mark.parametrize("trouble", ["a file in its place", "a file in place of a folder", "a link in place of a file"])
def test_a_directory_that_cannot_be_used_costs_a_warning(
    trouble: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "root"
    match trouble:
        case "a file in its place":
            root.write_text("a file")
        case "a file in place of a folder":
            root.mkdir()
            (root / "neff").write_text("a file")
        case _:
            (root / "neff").mkdir(parents=True)
            (root / "neff" / f"proc_{get_rank()}").symlink_to(tmp_path / "missing")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(root))
    for i in range(2):
        torch._dynamo.reset()
        bias = next(BIASES)
        result = compiled(lambda x, i=i, bias=bias: x * i + bias)(torch.ones(2, device="neuron"))
        assert result.tolist() == [i + bias] * 2
    assert caplog.text.count("Compilation artifacts are not written") == 1
    assert "TORCH_NEURONX_DEBUG_DIR" in caplog.text


def test_a_failure_that_cannot_be_written_down_is_told_in_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "root"))

    def refuse(self: EmulatorCompiler, request: CompileRequest) -> bytes:
        raise NEFFCompilationError("first line of the compiler\nlast line of the compiler")

    monkeypatch.setattr(EmulatorCompiler, "compile", refuse)
    bias = next(BIASES)
    with pytest.raises(NEFFCompilationError, match="first line of the compiler") as caught:
        compiled(lambda x: x * 5 + bias)(torch.ones(2, device="neuron"))
    assert caught.value.artifact is None


REFUSED = """
import torch
from torch_neuronx_compile.compilers.emulator.compiler import EmulatorCompiler
from torch_neuronx.errors import NEFFCompilationError

def refuse(self, request):
    raise NEFFCompilationError("refused")

EmulatorCompiler.compile = refuse
torch.compile(lambda x: x * 3 + 2, backend="neuron")(torch.ones(2, device="neuron"))
"""


def test_a_failure_stays_after_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "refused" in done.stderr
    left = [path for path in Path(os.environ["TORCH_NEURONX_DEBUG_DIR"]).rglob("*") if path.is_file()]
    assert sorted(path.name for path in left) == ["diagnostics.txt", "graph.txt"]
    assert str(left[0].parent) in done.stderr


def test_the_neff_runs_without_the_graph(root: Path) -> None:
    executable = select_runtime().load(artifact(root, "neff").read_bytes(), 0)
    inputs, outputs = executable.tensors
    assert (inputs.shape, inputs.dtype, inputs.nbytes) == ((7,), "float32", 28)
    assert (outputs.shape, outputs.dtype) == ((7,), "float32")
    (result,) = executable([torch.full((7,), 2.0, device="neuron")])
    assert torch.equal(result.cpu(), torch.full((7,), 3.5 + (next(BIASES) - 1)))
    executable.unload()
    executable.unload()
    with pytest.raises(NEFFExecutionError, match="unloaded"):
        executable([torch.ones(7, device="neuron")])


def test_the_program_compiles_again_to_the_same_tensors(root: Path) -> None:
    compiler = EmulatorCompiler()
    packed = neff.unpack(artifact(root, "neff").read_bytes())
    request = CompileRequest(packed.files["program.stablehlo"], "again", "trn2", 2, {})
    again = neff.unpack(compiler.compile(request))
    assert again.header.made_for == "emulator"
    assert again.files["tensors.json"] == packed.files["tensors.json"]


def test_a_program_that_is_none_is_refused() -> None:
    with pytest.raises(NEFFCompilationError):
        EmulatorCompiler().compile(CompileRequest(b"junk", "junk", "trn2", 2, {}))


def test_a_neff_with_another_executable_is_refused(root: Path) -> None:
    files = dict(neff.unpack(artifact(root, "neff").read_bytes()).files)
    for broken in (files | {"xla_cpu_executable": b"junk"}, {"program.stablehlo": b""}):
        packed = neff.pack(broken, name="broken", made_for="emulator", version="0")
        with pytest.raises(NEFFExecutionError):
            select_runtime().load(packed, 0)
