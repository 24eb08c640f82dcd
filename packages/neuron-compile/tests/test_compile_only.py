"""NEFFs without a run: outputs, targets, and the way back to running."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from torch_neuronx import metrics as counters
from torch_neuronx import neff
from torch_neuronx.compiler import CompileOptions, compile_only, current_options
from torch_neuronx.errors import ConfigurationError, RuntimeUnavailableError
from torch_neuronx_compile.metrics import get_dynamo_metrics

from .helpers import compiled


def executions() -> int:
    return counters.get_counter_value("Graphs.Executions") or 0


@pytest.mark.filterwarnings("ignore::torch_neuronx.errors.Float64Warning")
def test_outputs_are_zeros_of_the_right_kind() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return x @ x.T + 1, (x > 0), y.double() + 1, y

    x, y = torch.ones(3, 2, device="neuron", dtype=torch.bfloat16), torch.ones(2, device="neuron")
    with compile_only():
        outputs = compiled(function)(x, y)
    assert [(tuple(out.shape), out.dtype, out.device.type) for out in outputs] == [
        ((3, 3), torch.bfloat16, "neuron"),
        ((3, 2), torch.bool, "neuron"),
        ((2,), torch.float64, "neuron"),
        ((2,), torch.float32, "neuron"),
    ]
    for out in outputs[:3]:
        assert not out.cpu().any()
    assert outputs[3] is y


def test_outputs_lie_in_memory_as_if_the_graph_had_run() -> None:
    x = torch.ones(3, 2, device="neuron").t()
    function = compiled(lambda x: (x + 1, x.t() + 1))
    with compile_only():
        outputs = function(x)
    assert [out.stride() for out in outputs] == [(1, 2), (2, 1)] == [out.stride() for out in function(x)]


def test_a_training_step_gives_a_forward_and_a_backward_neff(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    before = executions()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).to("neuron")
    with compile_only():
        compiled(model)(torch.randn(5, 4, device="neuron")).sum().backward()
    assert executions() == before
    assert [metric.graph_name.split("_")[-2] for metric in get_dynamo_metrics()] == ["forward", "backward"]
    found = [neff.unpack(path.read_bytes()) for path in sorted((tmp_path / "neff" / "proc_0").iterdir())]
    assert [part.header.name.split("_")[-2] for part in found] == ["backward", "forward"]
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.shape == parameter.shape
        assert parameter.grad.device.type == "neuron"


def test_what_the_program_would_write_keeps_its_values() -> None:
    model = torch.nn.BatchNorm1d(3).to("neuron")
    model.running_mean.fill_(5.0)
    function = compiled(model)
    x = torch.randn(4, 3, device="neuron")
    with compile_only():
        function(x).sum().backward()
        with torch.no_grad():
            function(x)
    assert model.running_mean.tolist() == [5.0] * 3
    assert model.running_var.tolist() == [1.0] * 3
    assert model.num_batches_tracked.item() == 0
    function(x)
    assert model.running_mean.tolist() != [5.0] * 3
    assert model.num_batches_tracked.item() == 1


def test_gradients_of_cpu_leaves_stay_on_the_cpu() -> None:
    x = torch.randn(3, requires_grad=True)
    with compile_only():
        out = compiled(lambda x: (x * x).sum())(x)
        out.backward()
    assert out.device.type == "neuron"
    assert x.grad is not None
    assert x.grad.device.type == "cpu"


def test_what_was_compiled_only_runs_afterwards() -> None:
    function = compiled(lambda x: x * 2.5 + 1)
    x = torch.ones(3, device="neuron")
    with compile_only():
        assert not function(x).cpu().any()
    before = executions()
    assert torch.equal(function(x).cpu(), torch.full((3,), 3.5))
    assert executions() == before + 1
    first, second = get_dynamo_metrics()
    assert first.found_in is None
    assert second.found_in is not None


def test_what_has_run_does_not_run_inside() -> None:
    function = compiled(lambda x: x * 2.5 + 2)
    x = torch.ones(3, device="neuron")
    function(x)
    before = executions()
    with compile_only():
        assert not function(x).cpu().any()
    assert executions() == before


def test_it_decorates() -> None:
    @compile_only()
    def dry(x: Tensor) -> Tensor:
        assert current_options() is not None
        result: Tensor = compiled(lambda x: x + 41)(x)
        return result

    for _ in range(2):
        assert dry(torch.ones(1, device="neuron")).item() == 0
        assert current_options() is None


def test_a_decorator_without_parentheses_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="parentheses"), compile_only(lambda: None):  # type: ignore[arg-type]
        pass


def test_an_inner_block_takes_over_what_it_leaves_out() -> None:
    with compile_only(CompileOptions(target="trn3", model_name="outer", compiler_args="-O1")):
        with compile_only(CompileOptions(model_name="inner", compiler_args=["--auto-cast", "all"])):
            options = current_options()
            assert options == CompileOptions("inner", None, ["-O1", "--auto-cast", "all"], "trn3")
        options = current_options()
        assert options is not None
        assert options.model_name == "outer"
    assert current_options() is None


def test_other_threads_go_on_running() -> None:
    seen: list[float] = []

    def run() -> None:
        seen.append(compiled(lambda x: x + 17)(torch.ones(1, device="neuron")).item())

    with compile_only():
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert seen == [18.0]


def _targets(folder: Path) -> list[str]:
    return [path.name for path in (folder / "neff" / "proc_0").iterdir()]


def test_each_target_gets_its_neff(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    function = compiled(lambda x: x * 9 - 1)
    x = torch.ones(2, device="neuron")
    for target in ("trn2", "trn3", "trn3"):
        with compile_only(CompileOptions(target=target)):
            function(x)
    assert [metric.found_in for metric in get_dynamo_metrics()] == [None, None]
    assert len(_targets(tmp_path)) == 2


def test_the_argument_wins_over_the_variable_and_the_variable_over_the_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch_neuronx_compile.compilers.select import toolchain

    def target(**options: str) -> str:
        return toolchain(CompileOptions(**options)).layout.target.name

    with compile_only():
        assert target() == "trn2"
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
        assert target() == "trn3"
        assert target(target="trn2") == "trn2"
    with compile_only(CompileOptions(target="trn2")):
        assert target() == "trn2"
        assert target(target="trn3") == "trn3"
    with pytest.raises(ConfigurationError, match="no target 'trn1'"), compile_only(CompileOptions(target="trn1")):
        target()


NO_RUNTIME = """
import torch
from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics

model = torch.nn.Linear(4, 2).to("neuron")
compiled = torch.compile(model, backend="neuron", fullgraph=True)
out = compiled(torch.randn(3, 4, device="neuron"))
assert tuple(out.shape) == (3, 2) and out.device.type == "neuron" and not out.cpu().any()
out.sum().backward()
print(*(metric.graph_name.split("_")[-2] for metric in get_dynamo_metrics()))
"""

STAND_IN = """
from torch_neuronx import neff, plugins
from torch_neuronx.errors import RuntimeUnavailableError
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.runtimes.interface import Availability, Runtime


class Compiler:
    name, runtime = "stand-in", "broken"

    def version(self):
        return "1"

    def compile(self, request):
        assert request.target == "trn3", request.target
        return neff.pack({"program": request.program}, name=request.graph, made_for="broken", version="1")


class Broken(Runtime):
    name, eager = "broken", True

    def available(self):
        return Availability(False, "the driver did not start")

    def fail(self, *_):
        raise RuntimeUnavailableError("the driver did not start")

    layout = memory_info = load = close = fail


class Plugin:
    @hookimpl
    def torch_neuronx_register_compilers(self):
        return [Compiler()]

    @hookimpl
    def torch_neuronx_register_runtimes(self):
        return [Broken()]


plugins.manager().register(Plugin(), "stand-in")
"""


def _run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_runtime_that_does_not_start_is_not_fatal() -> None:
    variables = {"TORCH_NEURONX_RUNTIME": "broken", "NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"}
    done = _run(STAND_IN + NO_RUNTIME, TORCH_NEURONX_COMPILE_ONLY="1", **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["forward", "backward"]
    assert "Compile-only: tensors are kept in this machine's memory" in done.stderr
    assert "the driver did not start" in done.stderr
    done = _run(STAND_IN + NO_RUNTIME, **variables)
    assert done.returncode != 0
    assert "RuntimeUnavailableError" in done.stderr


def test_a_compiler_that_is_not_there_is_an_error_with_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_RUNTIME", "elsewhere")
    with pytest.raises(RuntimeUnavailableError, match=r"No installed compiler.*'elsewhere'"), compile_only():
        compiled(lambda x: x + 1)(torch.ones(1, device="neuron"))
