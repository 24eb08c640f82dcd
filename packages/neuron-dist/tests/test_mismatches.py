"""Ranks that do not agree on a call: an error on the rank that comes later, and no process dies."""

from pathlib import Path

import pytest
from ranks import mismatches
from ranks.world import World


@pytest.mark.parametrize("name", mismatches.CALLS)
def test_a_difference_is_an_error_before_anything_is_sent(pair: World, name: str) -> None:
    answers = pair.run(mismatches.errors_of, name)
    errors = [error for error, _ in answers if error is not None]
    assert any("The transport says: nothing, for the calls were compared" in error for error in errors)
    for error in errors:
        assert "of group" in error
        assert "failed on rank" in error
    if name not in ("send", "uneven all_to_all_single", "all_to_all", "all_to_all_single"):
        assert all("there, and rank" in error and "All ranks must make the same calls" in error for error in errors)
    for (error, later), others in zip(answers, reversed(answers), strict=True):
        if error is not None and "were compared" in error:
            assert later is not None
            assert "are out of step, since" in later
        else:
            assert others[0] is not None
            assert "were compared" in others[0]


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("root of broadcast", [f"broadcast of 4 Float with root {rank}" for rank in range(2)]),
        ("operator of all_reduce", [f"all_reduce of 4 Float with {operator}" for operator in ("SUM", "MAX")]),
        ("operator of reduce", [f"reduce of 4 Float with {operator} with root 0" for operator in ("SUM", "MAX")]),
        ("another call", ["all_reduce of 4 Float", "broadcast of 4 Float"]),
    ],
)
def test_what_differs_is_named(pair: World, name: str, calls: list[str]) -> None:
    errors = [error for error, _ in pair.run(mismatches.errors_of, name)]
    texts = [
        f"rank {1 - rank} called {calls[1 - rank]} there, and rank {rank} called {calls[rank]}." for rank in (0, 1)
    ]
    assert any(text in str(error) for text, error in zip(texts, errors, strict=True))


def test_operators_that_are_the_same(pair: World) -> None:
    pair.run(mismatches.operators_that_are_the_same)


def test_what_a_rank_gives_itself(pair: World) -> None:
    pair.run(mismatches.what_one_rank_gives_itself)


def test_what_an_earlier_job_left_in_the_store(pair: World, tmp_path: Path) -> None:
    pair.run(mismatches.memory_of_a_group_that_is_gone, str(tmp_path))
