"""A list of models compiled ahead of time, and the report."""

import io
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from torch_neuronx import metrics as counters
from torch_neuronx.compiler import CompileOptions, PrecompileReport, precompile
from torch_neuronx.errors import NEFFCompilationError
from torch_neuronx_compile.compilers.emulator.compiler import EmulatorCompiler


def report(entries: list[Any], *args: Any, terminal: bool = False, **kwargs: Any) -> tuple[PrecompileReport, str]:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=120)
    return precompile(entries, *args, console=console, **kwargs), stream.getvalue()


class Model(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).tanh()


def test_every_graph_is_a_row_and_none_runs() -> None:
    before = counters.get_counter_value("Graphs.Executions")
    model = Model(5).to("neuron")
    entries = [(model, torch.ones(2, 3, device="neuron")), (torch.sin, (torch.ones(4, device="neuron"),))]
    found, text = report(entries, CompileOptions(model_name="ahead", target="trn3"))
    assert [(row.graph.split("_")[0], row.graph.split("_")[-2], row.status) for row in found.rows] == [
        ("ahead", "forward", "compiled"),
        ("ahead", "backward", "compiled"),
        ("ahead", "inference", "compiled"),
    ]
    for row in found.rows:
        assert row.seconds > 0
        assert row.neff_bytes > 1024
        assert not row.cache_hit
        assert row.graph in text
    assert found.failed == ()
    assert text == str(found)
    for title in ("graph", "status", "time", "cache hit", "size"):
        assert title in text
    assert counters.get_counter_value("Graphs.Executions") == before
    assert model.layer.weight.grad is None


def test_what_a_cache_has_is_told_apart() -> None:
    x = torch.ones(6, device="neuron")
    first, _ = report([(lambda x: x * 2 + 3, x)])
    torch._dynamo.reset()
    second, text = report([(lambda x: x * 2 + 3, x)])
    assert [row.status for row in first.rows] == ["compiled"]
    assert [(row.status, row.cache_hit) for row in second.rows] == [("cached", True)]
    assert first.rows[0].neff_bytes == second.rows[0].neff_bytes
    assert "yes" in text


def test_a_failure_is_a_row_and_the_next_model_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EmulatorCompiler.compile
    requests: list[Any] = []

    def refuse_first(self: EmulatorCompiler, request: Any) -> bytes:
        requests.append(request)
        if len(requests) == 1:
            raise NEFFCompilationError("no tangents today")
        return original(self, request)

    monkeypatch.setattr(EmulatorCompiler, "compile", refuse_first)

    def broken(x: Tensor) -> Any:
        return x.no_such_method()  # type: ignore[attr-defined]

    def tangent(x: Tensor) -> Tensor:
        return x.tan() + 11

    x = torch.ones(3, device="neuron")
    found, text = report([(tangent, x), (broken, x), (lambda x: x + 12, x)])
    assert [row.status for row in found.rows] == ["failed", "failed", "compiled"]
    first, second = found.failed
    assert (first.graph, second.graph) == ("tangent", "broken")
    assert isinstance(first.error, NEFFCompilationError)
    assert "no tangents today" in text
    assert "broken: " in text


def test_inputs_by_name_and_a_call_without_a_graph() -> None:
    x = torch.ones(3, device="neuron")

    def named(*, left: Tensor, right: Tensor) -> Tensor:
        return left - right * 13

    def nothing(x: Tensor) -> int:
        return 3

    found, _ = report([(named, {"left": x, "right": x}), (nothing, x)])
    assert [row.status for row in found.rows] == ["compiled", "nothing to compile"]
    assert found.rows[1].graph == "nothing"


def test_progress_is_for_terminals() -> None:
    x = torch.ones(3, device="neuron")
    _, shown = report([(lambda x: x + 14, x)], terminal=True)
    assert "1/1" in shown
    torch._dynamo.reset()
    _, plain = report([(lambda x: x + 15, x)])
    assert "1/1" not in plain
    assert "\x1b" not in plain
