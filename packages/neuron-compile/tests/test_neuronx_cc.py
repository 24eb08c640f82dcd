"""The driver of neuronx-cc, against a stand-in for the command that follows its documented command line."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_neuronx import neff, plugins
from torch_neuronx.compiler import CompileOptions, compile_only
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.errors import NEFFCompilationError, RuntimeUnavailableError
from torch_neuronx.runtimes.nrt import NrtRuntime
from torch_neuronx_compile.compilers.neuronx_cc.compiler import NeuronxCompiler
from torch_neuronx_compile.metrics import get_dynamo_metrics

from .helpers import compiled

STAND_IN = Path(__file__).with_name("neuronx_cc_stand_in.py")
LIBNRT = Path(__file__).resolve().parents[2] / "neuron-core" / "tests" / "unit" / "nrt_stand_in.cpp"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """Put the stand-in on the PATH, and return what tells how it was called."""
    folder = tmp_path / "a folder; with odd $(names)"
    folder.mkdir()
    command = folder / "neuronx-cc"
    command.write_text(f"#!{sys.executable}\n" + STAND_IN.read_text().partition("\n")[2])
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    log = tmp_path / "calls"
    log.touch()
    monkeypatch.setenv("NEURONX_CC_STAND_IN_LOG", str(log))
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A program with a documented custom call, as the lowering makes it."""
    torch._dynamo.reset()
    root = tmp_path_factory.mktemp("program")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_NEURONX_DEBUG_DIR", str(root))
        patch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
        compiled(lambda x, y: torch.nn.functional.gelu(x @ y))(
            torch.ones(2, 3, device="neuron"), torch.ones(3, 5, device="neuron")
        )
    (path,) = (root / "neff").rglob("*.neff")
    return neff.unpack(path.read_bytes()).files["program.stablehlo"]


def request(program: bytes, **options: str) -> CompileRequest:
    return CompileRequest(program, "graph", "trn3", 2, options)


def test_it_is_the_compiler_of_the_chips_runtime() -> None:
    compiler = plugins.manager().compilers()["neuronx-cc"]
    assert compiler.runtime == "nrt"


def test_the_command_line(calls: Callable[[], list[dict[str, Any]]], program: bytes) -> None:
    flags = {"--enable-fast-context-switch": "", "--optlevel": "1"}
    made = NeuronxCompiler().compile(request(program, **flags))
    assert neff.read_header(made).made_for == "nrt"
    assert neff.unpack(made).files == {"def.json": b"{}"}
    (call,) = calls()
    assert call["--framework"] == "XLA"
    assert (call["--target"], call["--lnc"], call["--optlevel"]) == ("trn3", "2", "1")
    assert "--enable-fast-context-switch" in call
    for path in (call["input"], call["--output"]):
        assert Path(path).parent == Path(call["cwd"])
        assert Path(path).is_absolute()
    assert not Path(call["cwd"]).exists()


def test_the_version_is_what_the_command_says(calls: Callable[[], list[dict[str, Any]]]) -> None:
    assert NeuronxCompiler().version() == "2.28.7631.0+abcdef"


def test_without_the_command_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for ask in (NeuronxCompiler().version, lambda: NeuronxCompiler().compile(request(b""))):
        with pytest.raises(RuntimeUnavailableError, match=r"Install the package neuronx-cc.*TORCH_NEURONX_RUNTIME"):
            ask()


def test_a_command_without_a_version_is_unavailable(
    calls: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURONX_CC_STAND_IN_FAIL", "version")
    with pytest.raises(RuntimeUnavailableError, match=r"exit status 1 and no version.*no module named neuronxcc"):
        NeuronxCompiler().version()


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        ("error", r"exit status 70 \(NCC_EVRF001, NCC_EOOM002\).*operator sort is not supported"),
        ("kill", "ended with SIGKILL"),
        ("nothing", "ended well and left no NEFF"),
        ("junk", "left a file that is no NEFF"),
    ],
)
def test_a_failure_has_the_compilers_words(
    failure: str,
    says: str,
    calls: Callable[[], list[dict[str, Any]]],
    program: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEURONX_CC_STAND_IN_FAIL", failure)
    with pytest.raises(NEFFCompilationError, match=f"(?s){says}"):
        NeuronxCompiler().compile(request(program))


def test_a_flag_that_the_command_refuses(calls: Callable[[], list[dict[str, Any]]], program: bytes) -> None:
    with pytest.raises(NEFFCompilationError, match=r"NCC_EARG002.*--tensorizer-options"):
        NeuronxCompiler().compile(request(program, **{"--tensorizer-options": "x"}))


def test_a_program_that_is_none(calls: Callable[[], list[dict[str, Any]]]) -> None:
    with pytest.raises(NEFFCompilationError):
        NeuronxCompiler().compile(request(b"junk"))
    assert calls() == []


def test_the_time_limit_ends_what_the_command_started(
    calls: Callable[[], list[dict[str, Any]]], program: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURONX_CC_STAND_IN_FAIL", "hang")
    with pytest.raises(NEFFCompilationError, match="did not finish within 2 s"):
        NeuronxCompiler(time_limit=2).compile(request(program))
    (call,) = calls()
    deadline = time.monotonic() + 30
    while _processes_in(call["cwd"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _processes_in(folder: str) -> list[str]:
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            place = os.readlink(link)
        except OSError:
            continue
        if place.startswith(folder):
            found.append(str(link))
    return found


def test_compile_only_makes_the_chips_neffs(
    calls: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A training step for trn3 on a machine without a chip; libnrt's stand-in takes the NEFFs."""
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "root"))
    x = torch.randn(2, 3, device="neuron", requires_grad=True)
    with compile_only(CompileOptions(target="trn3", compiler_args="-O1")):
        out = compiled(lambda x: torch.nn.functional.gelu(x).sum())(x)
        out.backward()
    assert out.shape == ()
    assert x.grad is not None
    assert [call["--target"] for call in calls()] == ["trn3", "trn3"]
    assert [call["--optlevel"] for call in calls()] == ["1", "1"]
    library = tmp_path / "libnrt.so.1"
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", str(LIBNRT), "-o", str(library)], check=True, timeout=120)
    (tmp_path / "neuron0").touch()
    runtime = NrtRuntime([str(library)], devices=str(tmp_path / "neuron[0-9]*"))
    paths = sorted((tmp_path / "root" / "neff").rglob("*.neff"))
    assert len(paths) == 2
    for path in paths:
        executable = runtime.load(path.read_bytes(), 0)
        assert executable.tensors
        executable.unload()
    runtime.close()


def test_the_version_is_part_of_the_key(
    calls: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    function = compiled(lambda x: x * 8 + 6)
    x = torch.ones(2, device="neuron")

    def run() -> None:
        with compile_only():
            function(x)

    run()
    run()
    assert len(calls()) == 1
    command = Path(str(shutil.which("neuronx-cc")))
    command.write_text(command.read_text().replace("2.28.7631.0", "2.29.1.0"))
    os.utime(command, ns=(0, 0))
    run()
    assert len(calls()) == 2
    assert [metric.found_in for metric in get_dynamo_metrics()] == [None, None]


@pytest.mark.parametrize("runtime", ["emulator", "nrt"])
def test_the_variable_names_what_to_compile_for(
    runtime: str, calls: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_NEURONX_RUNTIME", runtime)
    with compile_only():
        compiled(lambda x: x * 8 + 7)(torch.ones(2, device="neuron"))
    assert len(calls()) == (runtime == "nrt")


def test_without_the_command_the_chip_cannot_be_compiled_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_NEURONX_RUNTIME", "nrt")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeUnavailableError, match="Install the package neuronx-cc"), compile_only():
        compiled(lambda x: x * 8 + 7)(torch.ones(2, device="neuron"))
    monkeypatch.setenv("TORCH_NEURONX_RUNTIME", "auto")
    with compile_only():
        compiled(lambda x: x * 8 + 7)(torch.ones(2, device="neuron"))
    assert len(get_dynamo_metrics()) == 1
