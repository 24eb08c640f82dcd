"""Every collective, dtype, reduction and group layout on 2 and 4 real processes: equal to Gloo on the CPU."""

import pytest
import torch
from ranks import compare
from ranks.world import World


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("dtype", compare.DTYPES, ids=_dtype_name)
@pytest.mark.parametrize("name", compare.MOVES)
def test_moves_every_byte(world: World, name: str, dtype: torch.dtype) -> None:
    world.run(compare.compare_moves, name, dtype)


@pytest.mark.parametrize("dtype", compare.DTYPES, ids=_dtype_name)
@pytest.mark.parametrize("name", compare.REDUCES)
def test_reduces_as_gloo_does(world: World, name: str, dtype: torch.dtype) -> None:
    world.run(compare.compare_reduces, name, dtype)
