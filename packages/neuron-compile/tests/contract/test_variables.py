"""Environment variables of the backend: one test for each row of the reference tables, by its effect."""

import csv
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_neuronx import config
from torch_neuronx import metrics as counters
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.errors import ConfigurationError, NEFFCompilationError
from torch_neuronx_compile import metrics
from torch_neuronx_compile.compilers.emulator.compiler import EmulatorCompiler


def run(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="neuron", fullgraph=True, **options)(*inputs)


def device(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device="neuron")


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No graph compiles."""

    def refuse(self: EmulatorCompiler, request: CompileRequest) -> bytes:
        raise NEFFCompilationError("refused")

    monkeypatch.setattr(EmulatorCompiler, "compile", refuse)


@pytest.mark.usefixtures("refusing")
def test_TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NEFFCompilationError, match="refused"):
        run(lambda x: x * 101, device(1))
    for true in ("1", "true", "YES"):
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", true)
        with pytest.raises(NEFFCompilationError, match="refused"):
            run(lambda x: x * 101, device(1))
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    with caplog.at_level(logging.WARNING, "torch_neuronx.compile"):
        function = torch.compile(lambda x: x * 101, backend="neuron", fullgraph=True)
        for _ in range(3):
            assert function(device(1)).tolist() == [101]
    assert caplog.text.count("runs in eager mode") == 1
    assert counters.get_counter_value("Graphs.Fallbacks") == 1


def test_TORCH_NEURONX_DEBUG_DIR(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TORCH_NEURONX_DEBUG_DIR")
    assert str(config.get(config.DEBUG_DIR)).startswith("/tmp/neuron_backend_")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "root"))
    run(lambda x: x * 102, device(1))
    kinds = {path.name.partition(".")[2] for path in (tmp_path / "root").rglob("*") if path.is_file()}
    assert kinds == {"fx.txt", "torch_raw.mlir", "stablehlo.mlir", "neff"}


def test_TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from torch_neuronx_compile import artifacts

    for preserve in ("0", "1"):
        monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / preserve))
        monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", preserve)
        run(lambda x: x * 103, device(1))
    artifacts._remove(artifacts._process)  # what happens at exit; test_artifacts.py sees it happen
    assert not list((tmp_path / "0").rglob("*.*"))
    assert list((tmp_path / "1").rglob("*.*"))


def test_TORCH_NEURONX_COMPILE_ONLY(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_COMPILE_ONLY", "1")
    assert run(lambda x: x * 104 + 1, device(1)).tolist() == [0]
    assert counters.get_counter_value("CompilationCache.TotalCompilations") == 1
    assert counters.get_counter_value("Graphs.Executions") is None
    monkeypatch.setenv("TORCH_NEURONX_COMPILE_ONLY", "no")
    assert run(lambda x: x * 104 + 1, device(1)).tolist() == [105]


def test_TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1)
    assert run(lambda x: x * 105, x).device.type == "neuron"
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "true")
    with pytest.raises(RuntimeError, match=r"Input tensor at index 0 is on cpu device, expected neuron\."):
        run(lambda x: x * 105, x)


def test_TORCH_NEURONX_RETAIN_DEVICE_MODE(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(lambda x: x * 106, torch.ones(1)).device.type == "neuron"
    monkeypatch.setenv("TORCH_NEURONX_RETAIN_DEVICE_MODE", "1")
    result = run(lambda x: x * 106, torch.ones(1))
    assert result.device.type == "cpu"
    assert result.tolist() == [106]
    assert run(lambda x: x * 106, device(1)).device.type == "neuron"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CompileRequest]:
    """What the compiler is asked for."""
    requests: list[CompileRequest] = []
    original = EmulatorCompiler.compile

    def compile(self: EmulatorCompiler, request: CompileRequest) -> bytes:
        requests.append(request)
        return original(self, request)

    monkeypatch.setattr(EmulatorCompiler, "compile", compile)
    return requests


def test_NEURON_PLATFORM_TARGET_OVERRIDE(monkeypatch: pytest.MonkeyPatch, asked: list[CompileRequest]) -> None:
    for target in ("trn2", "trn3"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
        run(lambda x: x * 107, device(1))
    run(lambda x: x * 107 + 1, device(1), options={"target": "trn2"})
    assert [request.target for request in asked] == ["trn2", "trn3", "trn2"]
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn0")
    with pytest.raises(ConfigurationError, match="no target 'trn0'"):
        run(lambda x: x * 107, device(1))


def test_NEURON_CC_FLAGS(monkeypatch: pytest.MonkeyPatch, asked: list[CompileRequest]) -> None:
    run(lambda x: x * 108, device(1))
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1 --model-type=transformer")
    run(lambda x: x * 108, device(1))
    assert [request.options for request in asked] == [{}, {"--model-type": "transformer", "--optlevel": "1"}]


def test_TORCH_NEURONX_ENABLED_METRIC_TABLES(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_NEURONX_METRICS_DIR", str(tmp_path / "tables"))
    run(lambda x: x * 109, device(1))
    assert not (tmp_path / "tables").exists()
    monkeypatch.setenv("TORCH_NEURONX_ENABLED_METRIC_TABLES", "graph_stats")
    run(lambda x: x * 109, device(1))
    (path,) = (tmp_path / "tables").iterdir()
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert tuple(row) == metrics.COLUMNS
    assert row["graph_name"] == metrics.get_dynamo_metrics()[1].graph_name


def test_TORCH_NEURONX_METRICS_DIR(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert config.get(config.METRICS_DIR, {}) == Path("/tmp")
    monkeypatch.setenv("TORCH_NEURONX_ENABLED_METRIC_TABLES", "graph_stats")
    for folder in ("one", "two"):
        monkeypatch.setenv("TORCH_NEURONX_METRICS_DIR", str(tmp_path / folder))
        run(lambda x: x * 110, device(1))
        (path,) = (tmp_path / folder).iterdir()
        assert str(os.getpid()) in path.name
