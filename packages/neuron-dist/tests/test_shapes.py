"""Shapes and strides that are not plain: hypothesis draws them, real ranks run them."""

import pytest
import torch
from conftest import SIZES, Worlds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import programs

DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.bool, torch.float8_e4m3fn])
real_ranks = settings(
    max_examples=25,
    deadline=None,  # processes on a shared machine
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("size", SIZES)
@real_ranks
@given(
    base=st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple),
    transposed=st.booleans(),
    step=st.integers(1, 3),
    dtype=DTYPES,
)
def test_strides_and_empty_tensors(
    worlds: Worlds, size: int, base: tuple[int, ...], transposed: bool, step: int, dtype: torch.dtype
) -> None:
    worlds.of(size).run(programs.strided_collectives, base, transposed, step, dtype)


@pytest.mark.parametrize("size", SIZES)
@real_ranks
@given(
    splits=st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=4, max_size=4),
    width=st.integers(1, 3),
    dtype=DTYPES,
)
def test_uneven_all_to_all(worlds: Worlds, size: int, splits: list[list[int]], width: int, dtype: torch.dtype) -> None:
    worlds.of(size).run(programs.uneven_all_to_all, splits, width, dtype)


@pytest.mark.parametrize("size", SIZES)
@real_ranks
@given(rows=st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_uneven_reduce_scatter(worlds: Worlds, size: int, rows: list[int]) -> None:
    worlds.of(size).run(programs.uneven_reduce_scatter, rows)
