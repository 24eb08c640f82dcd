"""Programs that the process keeps: those used last."""

import gc
import weakref

import pytest
import torch
from torch import Tensor

from torch_neuronx import metrics
from torch_neuronx_compile import loaded

from .helpers import compiled


@pytest.fixture(autouse=True)
def two_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded._loaded.clear()
    loaded._neffs.clear()
    monkeypatch.setattr(loaded, "KEPT", 2)


def _multiply(x: Tensor, factor: int) -> Tensor:
    return x * factor


def test_those_used_last_are_kept() -> None:
    x = torch.ones(3, device="neuron")

    def found(factor: int) -> bool:
        torch._dynamo.reset()
        before = metrics.get_counter_value("CompilationCache.InMemoryHits") or 0
        compiled(_multiply)(x, factor)
        return (metrics.get_counter_value("CompilationCache.InMemoryHits") or 0) > before

    calls = [1001, 1002, 1001, 1003, 1001, 1002, 1003]
    assert [found(factor) for factor in calls] == [False, False, True, False, True, False, False]
    assert len(loaded._loaded) == len(loaded._neffs) == 2


def test_a_graph_keeps_its_own() -> None:
    x = torch.ones(3, device="neuron")
    call = compiled(_multiply)
    call(x, 2001)
    (executable,) = (weakref.ref(program) for program in loaded._loaded.values())
    for factor in (2002, 2003):
        call(x, factor)
    assert executable() not in loaded._loaded.values()
    assert call(x, 2001).tolist() == [2001.0] * 3
    del call
    torch._dynamo.reset()
    gc.collect()
    assert executable() is None, "nobody can run it any more"
