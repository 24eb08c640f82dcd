"""Collectives where device memory is unreadable outside kernels: the carrier's threads must be let in."""

from collections.abc import Iterator

import pytest
import torch
from ranks import compare, programs
from ranks.world import World


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(2, tmp_path_factory.mktemp("protected"), {"TORCH_NEURONX_EMULATOR_PROTECT": "1"}) as world:
        yield world


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.complex64])
def test_collectives(protected: World, dtype: torch.dtype) -> None:
    for name in compare.MOVES:
        protected.run(compare.compare_move, name, dtype, "world")
    for name in compare.REDUCES:
        protected.run(compare.compare_reduce, name, dtype, compare.Reduction("SUM"), "world")


def test_futures_and_training(protected: World) -> None:
    protected.run(programs.futures_of_sends_and_receives)
    protected.run(programs.ddp_step)


def test_memory_is_closed_again(protected: World) -> None:
    protected.run(programs.memory_is_closed_after_collectives)
