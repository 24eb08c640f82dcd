"""The core of a process that a launcher started."""

import pytest

from torch_neuronx.errors import TooManyRanksError
from torch_neuronx.runtimes.emulator import EmulatorRuntime
from torch_neuronx.runtimes.launcher import index_of_rank


def cores() -> list[int]:
    return [core.index for core in EmulatorRuntime().layout().logical_cores]


def test_without_a_launcher_every_core_is_seen() -> None:
    assert cores() == [0, 1, 2, 3]


def test_a_rank_sees_the_core_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert cores() == [1]
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "3,2")
    assert cores() == [2]
    assert index_of_rank(1, EmulatorRuntime().layout()) == 0
    assert index_of_rank(2, EmulatorRuntime().layout()) == 2


@pytest.mark.parametrize(("rank", "ranks"), [("2", ""), ("0", "3")])
def test_more_ranks_than_cores(monkeypatch: pytest.MonkeyPatch, rank: str, ranks: str) -> None:
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")
    monkeypatch.setenv("LOCAL_RANK", rank)
    if ranks:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    with pytest.raises(TooManyRanksError, match="3 ranks on this host, which shows 2 Neuron cores"):
        cores()
    monkeypatch.setenv("TORCH_NEURONX_EMULATOR_RELAXED", "1")
    assert cores() == [0]
