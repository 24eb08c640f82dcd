"""Graphs that another thread compiles, and how seldom garbage is looked for meanwhile."""

import gc
import threading
from contextvars import ContextVar
from pathlib import Path

import pytest
import torch

from torch_neuronx_compile import garbage
from torch_neuronx_compile.errors import GraphCompilationError
from torch_neuronx_compile.metrics import collected, get_dynamo_metrics
from torch_neuronx_compile.pending import PendingGraph, settled
from torch_neuronx_compile.worker import child
from torch_neuronx_compile.worker.pool import SIZE

VARIABLE: ContextVar[int] = ContextVar("test", default=0)


def test_a_graph_is_compiled_elsewhere_in_the_same_context() -> None:
    token = VARIABLE.set(7)
    seen: list[tuple[int, bool]] = []

    def compile_now() -> object:
        seen.append((VARIABLE.get(), threading.current_thread() is threading.main_thread()))
        return lambda arguments: [argument + 1 for argument in arguments]

    pending = PendingGraph("model", compile_now)  # type: ignore[arg-type]
    VARIABLE.reset(token)
    assert pending([1, 2]) == [2, 3]
    assert settled(pending)([3]) == [4]
    assert seen == [(7, False)]


def test_its_error_is_raised_where_it_is_waited_for() -> None:
    def compile_now() -> object:
        raise ValueError("no")

    pending = PendingGraph("model", compile_now)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            settled(pending)


@pytest.mark.skipif(SIZE < 2, reason="one processor has one worker")
def test_forward_and_backward_are_lowered_at_the_same_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_NEURONX_NEFF_DISABLE_CACHE", "1")
    monkeypatch.setenv("TORCH_NEURONX_HLO_CACHE_DIR", str(tmp_path))
    both = threading.Barrier(2, timeout=120)
    original = child.Worker.call

    def call(self: child.Worker, function: str, **arguments: object) -> object:
        if function.endswith(":lower"):
            both.wait()  # raises where one is lowered after the other
        return original(self, function, **arguments)

    monkeypatch.setattr(child.Worker, "call", call)
    x = torch.ones(3, 5, device="neuron", requires_grad=True)
    with collected() as records:
        torch.compile(lambda x: (x.sin() * x.exp()).sum(), backend="neuron")(x).backward()
    assert {record.graph_name.split("_")[-2] for record in records} == {"forward", "backward"}
    names = [record.graph_name for record in get_dynamo_metrics()[-2:]]
    assert [name.split("_")[-2] for name in names] == ["forward", "backward"]
    assert x.grad is not None


def test_a_forward_graph_that_does_not_compile_says_so_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_NEFF_DISABLE_CACHE", "1")
    original = child.Worker.call

    def call(self: child.Worker, function: str, **arguments: object) -> object:
        if function.endswith(":compile_program"):
            raise child.WorkerError("nothing compiles today")
        return original(self, function, **arguments)

    monkeypatch.setattr(child.Worker, "call", call)
    x = torch.ones(3, 7, device="neuron", requires_grad=True)
    with pytest.raises(GraphCompilationError, match=r"_forward_0.*nothing compiles today"):
        torch.compile(lambda x: (x.cos() * x.exp()).sum(), backend="neuron")(x)


def test_garbage_is_collected_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with garbage.seldom_collected():
        assert gc.get_threshold() == garbage.THRESHOLDS
        with garbage.seldom_collected():
            assert gc.get_threshold() == garbage.THRESHOLDS
        assert gc.get_threshold() == garbage.THRESHOLDS
    assert gc.get_threshold() == before


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 5, 5)])
def test_a_programs_own_thresholds_stay(own: tuple[int, int, int]) -> None:
    before = gc.get_threshold()
    gc.set_threshold(*own)
    try:
        with garbage.seldom_collected():
            assert gc.get_threshold() == own
        assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)
