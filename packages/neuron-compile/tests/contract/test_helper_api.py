"""``torch_neuronx.neuron_dynamo_backend``: one test for each symbol and each metrics field of the reference tables."""

import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from torch_neuronx import metrics as counters
from torch_neuronx import neff
from torch_neuronx import neuron_dynamo_backend as helpers
from torch_neuronx.compilers import CompileRequest
from torch_neuronx_compile import loaded
from torch_neuronx_compile.compilers.emulator.compiler import EmulatorCompiler


def run(function: Any, *inputs: Tensor, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="neuron", fullgraph=True, **options)(*inputs)


FRESH = itertools.count(1000)
"""Numbers for programs that this process has not compiled before."""


def device(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device="neuron")


def test_every_symbol_is_importable() -> None:
    symbols = {
        "set_model_name",
        "get_model_name",
        "get_rank",
        "get_dynamo_metrics",
        "reset_dynamo_metrics",
        "NEFFCompilationError",
        "NEFFExecutionError",
    }
    assert symbols <= set(helpers.__all__)
    for name in symbols:
        assert callable(getattr(helpers, name))
    for module, names in (
        ("config", ["set_model_name", "get_model_name", "get_rank"]),
        ("metrics", ["get_dynamo_metrics", "reset_dynamo_metrics"]),
        ("exceptions", ["NEFFCompilationError", "NEFFExecutionError"]),
    ):
        part = __import__(f"torch_neuronx.neuron_dynamo_backend.{module}", fromlist=names)
        for name in names:
            assert getattr(part, name) is getattr(helpers, name)


def test_set_model_name() -> None:
    run(lambda x: x + 201, device(1))
    assert helpers.set_model_name("gpt") is None
    run(lambda x: x + 202, device(1))
    before, after = helpers.get_dynamo_metrics()
    assert before.graph_name.startswith("model_default_")
    assert after.graph_name.startswith("gpt_")


def test_get_model_name() -> None:
    assert helpers.get_model_name() == "model_default"
    helpers.set_model_name("gpt")
    assert helpers.get_model_name() == "gpt"


@pytest.fixture
def two_cores() -> Iterator[None]:
    torch.neuron.set_device(1)
    yield
    torch.neuron.set_device(0)


@pytest.mark.usefixtures("two_cores")
def test_get_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert helpers.get_rank() == torch.neuron.current_device() == 1
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert helpers.get_rank() == 0
    finally:
        dist.destroy_process_group()


def test_get_dynamo_metrics() -> None:
    assert helpers.get_dynamo_metrics() == []
    x = device(1, 2).requires_grad_()
    run(lambda x: (x * 203).sum(), x).backward()
    found = helpers.get_dynamo_metrics()
    assert [type(metric) for metric in found] == [helpers.NeuronCompilationMetrics] * 2


def test_reset_dynamo_metrics() -> None:
    run(lambda x: x + 204, device(1))
    assert helpers.reset_dynamo_metrics() is None
    assert helpers.get_dynamo_metrics() == []
    assert counters.get_counter_value("CompilationCache.TotalCompilations") is None


def test_NEFFCompilationError(monkeypatch: pytest.MonkeyPatch) -> None:
    """One ``except`` around the user's step catches a forward and a backward graph that does not compile."""
    assert issubclass(helpers.NEFFCompilationError, Exception)
    original = EmulatorCompiler.compile

    def step(bias: int) -> None:
        x = device(1, 2).requires_grad_()
        run(lambda x: (x.sin() * bias).sum(), x).backward()

    for kind, bias in (("forward", 205), ("backward", 206)):

        def refuse(self: EmulatorCompiler, request: CompileRequest, kind: str = kind) -> bytes:
            if f"_{kind}_" in request.graph:
                raise helpers.NEFFCompilationError("refused")
            return original(self, request)

        monkeypatch.setattr(EmulatorCompiler, "compile", refuse)
        with pytest.raises(helpers.NEFFCompilationError, match=f"_{kind}_0.*refused"):
            step(bias)


def test_NEFFExecutionError() -> None:
    assert issubclass(helpers.NEFFExecutionError, Exception)
    raising, falling = (
        torch.compile(lambda x: x + 207, backend="neuron", fullgraph=True, options={"fallback_execution": falls})
        for falls in (False, True)
    )
    for function in (raising, falling):
        function(device(1))
    for executable in loaded._loaded.values():  # as a runtime that was reset would
        executable.unload()
    loaded._loaded.clear()
    with pytest.raises(helpers.NEFFExecutionError):
        raising(device(1))
    for _ in range(2):
        assert falling(device(1)).tolist() == [208]
    assert counters.get_counter_value("Graphs.Fallbacks") == 1


# The fields of a record -----------------------------------------------------------------------------------------------


@pytest.fixture
def record() -> Any:
    helpers.set_model_name("net")
    bias = next(FRESH)
    run(lambda x: x.exp() * 2 + bias, device(1, 2))
    (found,) = helpers.get_dynamo_metrics()
    return found


def test_graph_id(record: Any) -> None:
    assert isinstance(record.graph_id, str)
    helpers.reset_dynamo_metrics()
    for bias in (208, 208, 209):
        run(lambda x, bias=bias: x.exp() * 2 + bias, device(1, 2))
    one, same, other = helpers.get_dynamo_metrics()
    assert one.graph_id == same.graph_id != other.graph_id


def test_graph_name(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, aot_id, graph_type, nth = record.graph_name.split("_")
    assert (model, graph_type, nth) == ("net", "inference", "0")
    assert aot_id.isdigit()


def test_model_name(record: Any) -> None:
    assert record.model_name == "net"


def test_has_collectives(record: Any) -> None:
    assert record.has_collectives is False  # test_metrics.py has a graph with one


def test_graph_node_count(record: Any) -> None:
    assert record.graph_node_count == 5  # input, exp, mul, add, output


def test_timestamp(record: Any) -> None:
    run(lambda x: x + 210, device(1))
    first, second = helpers.get_dynamo_metrics()
    assert first.timestamp < second.timestamp
    assert datetime.fromisoformat(first.timestamp).tzinfo is not None


@pytest.mark.parametrize("stage", ["fx_passes", "lower", "compile"])
def test_torch_neuronx_us(record: Any, stage: str) -> None:
    spent = getattr(record, f"torch_neuronx_{stage}_us")
    assert type(spent) is int
    assert spent > 0


def test_the_name_is_in_the_neff(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []
    original = EmulatorCompiler.compile

    def compile(self: EmulatorCompiler, request: CompileRequest) -> bytes:
        made.append(original(self, request))
        return made[-1]

    monkeypatch.setattr(EmulatorCompiler, "compile", compile)
    run(lambda x: x + 211, device(1))
    assert neff.read_header(made[0]).name == helpers.get_dynamo_metrics()[-1].graph_name
