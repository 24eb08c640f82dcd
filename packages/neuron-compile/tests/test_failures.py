"""A graph that does not compile: what the user sees, and what runs instead where that is allowed."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_neuronx.errors import NEFFCompilationError, NEFFExecutionError
from torch_neuronx_compile import loaded
from torch_neuronx_compile.backend import neuron
from torch_neuronx_compile.errors import GraphCompilationError
from torch_neuronx_compile.worker import client

from .helpers import compiled
from .refusals import refuse


def unsupported(x: Tensor) -> Tensor:
    return torch.erfinv(x / 2) * 2


@pytest.fixture(autouse=True)
def no_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "aten.erfinv.default")


def behind_another_backend(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile by a backend that calls this one: Dynamo's trace is not ours then, and no call breaks the graph."""
    return torch.compile(function, backend=lambda graph, inputs: neuron(graph, inputs, options=options), fullgraph=True)


def test_the_error_names_the_operator_and_its_line(tmp_path: Path) -> None:
    with pytest.raises(
        NEFFCompilationError, match=r"erfinv.*float32\[3\].*test_failures.py.*has no lowering"
    ) as caught:
        behind_another_backend(unsupported)(torch.ones(3, device="neuron"))
    error = caught.value
    assert isinstance(error, GraphCompilationError)
    assert error.op == "aten.erfinv.default"
    assert error.reason == "has no lowering"
    assert error.artifact is not None
    assert error.artifact in str(error)
    assert "erfinv" in (Path(error.artifact) / "graph.txt").read_text()
    assert "erfinv" in (Path(error.artifact) / "diagnostics.txt").read_text()


def test_shapes_that_depend_on_data_are_refused() -> None:
    with pytest.raises(NEFFCompilationError, match=r"nonzero.*shape depends on the values"):
        behind_another_backend(lambda x: x.nonzero())(torch.ones(3, device="neuron"))


def test_without_fullgraph_such_calls_break_the_graph() -> None:
    function = torch.compile(lambda x: (x + 1).nonzero() * 2, backend="neuron")
    assert function(torch.tensor([0.0, -1.0], device="neuron")).tolist() == [[0]]


def test_the_option_falls_back_to_eager_mode(caplog: pytest.LogCaptureFixture) -> None:
    function = behind_another_backend(unsupported, fallback_execution=True)
    x = torch.rand(3)
    with caplog.at_level(logging.WARNING, "torch_neuronx.compile"):
        result = function(x.to("neuron"))
    torch.testing.assert_close(result.cpu(), unsupported(x))
    assert "runs in eager mode" in caplog.text
    assert "erfinv" in caplog.text


def test_the_variable_falls_back_to_eager_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    x = torch.rand(3)
    torch.testing.assert_close(behind_another_backend(unsupported)(x.to("neuron")).cpu(), unsupported(x))


def test_the_option_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    with pytest.raises(NEFFCompilationError):
        behind_another_backend(unsupported, fallback_execution=False)(torch.ones(3, device="neuron"))


def _lose_programs() -> None:
    """Take the programs away from under their graphs, as a runtime that was reset would."""
    for executable in loaded._loaded.values():
        executable.unload()
    loaded._loaded.clear()


def test_a_run_that_fails_raises() -> None:
    function = compiled(lambda x: x + 1)
    x = torch.ones(3, device="neuron")
    function(x)
    _lose_programs()
    with pytest.raises(NEFFExecutionError, match="unloaded"):
        function(x)


def test_a_run_that_fails_falls_back_where_allowed(caplog: pytest.LogCaptureFixture) -> None:
    function = compiled(lambda x: (x + 1, x), options={"fallback_execution": True})
    x = torch.ones(3, device="neuron")
    function(x)
    _lose_programs()
    with caplog.at_level(logging.WARNING, "torch_neuronx.compile"):
        for _ in range(2):
            assert torch.equal(function(x)[0].cpu(), torch.full((3,), 2.0))
    assert caplog.text.count("runs in eager mode from now on") == 1


@pytest.mark.parametrize(
    ("task", "says"),
    [("os:abort", "SIGABRT"), ("signal:pause", "did not finish within 4 s"), ("os:nothing", "nothing")],
)
def test_a_worker_that_fails_costs_the_graph_only(monkeypatch: pytest.MonkeyPatch, task: str, says: str) -> None:
    """A lowering that aborts, hangs or raises: made by sending another task in its place to a real worker."""
    child = client.Worker(time_limit=4)
    child.call("os:getpid")
    sent = child.call
    monkeypatch.setattr(child, "call", lambda function, **arguments: sent(task))
    monkeypatch.setattr("torch_neuronx_compile.lowering.lower.worker", lambda: child)
    with pytest.raises(NEFFCompilationError, match=says) as caught:
        compiled(lambda x: x + 1)(torch.ones(3, device="neuron"))
    assert caught.value.op == "aten.add.Tensor"
    monkeypatch.undo()
    torch._dynamo.reset()
    assert torch.equal(compiled(lambda x: x + 1)(torch.ones(3, device="neuron")).cpu(), torch.full((3,), 2.0))
    child.close()
