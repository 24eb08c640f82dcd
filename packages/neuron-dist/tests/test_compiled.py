"""Collectives inside compiled graphs on 2 and 4 real processes, against eager mode and models in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ranks import compiled
from ranks.world import RankError, World

from torch_neuronx_dist.graphs.replica_groups import partition

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Worlds


@pytest.mark.parametrize("name", compiled.FUNCTIONS)
def test_a_compiled_collective_equals_the_eager_one(pair: World, name: str, tmp_path: Path) -> None:
    pair.run(compiled.equals_eager, name, str(tmp_path))


@pytest.mark.parametrize(("layout", "ranks"), [("world", 4), ("halves", 4), ("alone", 2)])
def test_all_collectives_in_every_layout_of_groups(worlds: Worlds, layout: str, ranks: int, tmp_path: Path) -> None:
    worlds.of(ranks).run(compiled.equal_eager_in_one_graph, layout, str(tmp_path))


def test_gradients_of_collectives(four: World, tmp_path: Path) -> None:
    four.run(compiled.gradients_equal_eager, str(tmp_path))


def test_all_ranks_share_one_program(world: World, tmp_path: Path) -> None:
    results = world.run(compiled.compile_events, str(tmp_path))
    first = [[key, collectives] for key, collectives, _ in results[0]]
    assert [collectives for _, collectives in first] == [True, False]
    for result in results:
        assert [[key, collectives] for key, collectives, _ in result] == first
    for graph in range(2):
        assert sum(result[graph][2] for result in results) == 1


def test_artifacts_are_kept_by_rank(pair: World, tmp_path: Path) -> None:
    results = pair.run(compiled.ranks_of_artifacts, str(tmp_path))
    assert results == [(0, ["proc_0", "proc_1"]), (1, ["proc_0", "proc_1"])]


def test_uneven_parts_break_the_graph(four: World, tmp_path: Path) -> None:
    four.run(compiled.uneven_parts_break_the_graph, str(tmp_path))


def test_sends_and_receives_break_the_graph(pair: World, tmp_path: Path) -> None:
    pair.run(compiled.point_to_point_breaks_the_graph, str(tmp_path))


def test_groups_that_are_no_dimension_of_a_mesh(worlds: Worlds, tmp_path: Path) -> None:
    worlds.of(4).run(compiled.irregular_groups, str(tmp_path))


def test_a_rank_that_hangs_is_the_error_of_eager_mode(four: World, tmp_path: Path) -> None:
    (compiled_error, eager_error), *_ = four.run(compiled.errors_where_a_rank_hangs, str(tmp_path))
    assert compiled_error == eager_error
    assert eager_error[1].startswith("all_reduce (number 1 of group 'name') failed on rank 0 after seconds: rank 1 of ")


def test_a_rank_that_calls_something_else_is_the_error_of_eager_mode(four: World, tmp_path: Path) -> None:
    _, sums, broadcasts, _ = four.run(compiled.errors_where_a_rank_differs, str(tmp_path))
    for (_, text), own, other in (
        (sums[0], "rank 1 called all_reduce of 4 Float", "rank 2 called broadcast of 4 Float"),
        (broadcasts[0], "rank 2 called broadcast of 4 Float", "rank 1 called all_reduce of 4 Float"),
    ):
        assert f"after seconds: {other} there, and {own}. All ranks must make the same calls" in text
    assert sums[0] == sums[1]
    assert broadcasts[0] == broadcasts[1]


def test_tensors_of_different_sizes(four: World, tmp_path: Path) -> None:
    _, _, *answers = four.run(compiled.errors_where_sizes_differ, str(tmp_path))
    own, other = "all_reduce of 200 Float", "all_reduce of 300 Float"
    for rank, (errors, mine, others) in enumerate(zip(answers, (own, other), (other, own), strict=True), start=2):
        assert f"rank {5 - rank} called {others} there, and rank {rank} called {mine}." in errors[0]
        assert all("are out of step, since" in later for later in errors[1:])
    assert max(map(len, answers)) == 2


def test_the_wrapper_of_debug_mode(tmp_path: Path) -> None:
    with World(2, tmp_path, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}) as world:
        world.run(compiled.debug_mode, str(tmp_path))


def test_a_peer_that_dies(tmp_path: Path) -> None:
    with World(2, tmp_path) as world, pytest.raises(RankError) as caught:
        world.run(compiled.a_peer_dies, str(tmp_path))
    assert str(caught.value) == "rank 1: the process died"


@pytest.mark.parametrize(("size", "sequence"), [(2, False), (4, True)], ids=["tensor", "sequence"])
def test_tensor_parallel(worlds: Worlds, size: int, sequence: bool, tmp_path: Path) -> None:
    worlds.of(size).run(compiled.tensor_parallel, sequence, str(tmp_path))


def test_loss_parallel(pair: World, tmp_path: Path) -> None:
    pair.run(compiled.loss_parallel, str(tmp_path))


def test_ddp_around_a_compiled_module(pair: World, tmp_path: Path) -> None:
    assert pair.run(compiled.ddp, True, str(tmp_path)) == [4, 4]


def test_compiled_ddp_is_split_at_its_buckets(pair: World, tmp_path: Path) -> None:
    assert pair.run(compiled.ddp, False, str(tmp_path)) == [6, 6]


def test_sharding_in_the_traced_graph(four: World, tmp_path: Path) -> None:
    assert four.run(compiled.simple_fsdp, str(tmp_path)) == [[True, True]] * 4


def test_guards_that_diverge(pair: World, tmp_path: Path) -> None:
    assert pair.run(compiled.guards_diverge, str(tmp_path)) == [2, 2]


@pytest.mark.parametrize(
    ("ranks", "size", "expected"),
    [
        ([0, 1, 2, 3], 4, ((0, 1, 2, 3),)),
        ([2, 3], 4, ((0, 1), (2, 3))),
        ([1, 3], 4, ((0, 2), (1, 3))),
        ([3, 1], 4, ((2, 0), (3, 1))),
        ([2], 3, ((0,), (1,), (2,))),
        ([1, 3, 9, 11], 16, ((0, 2, 8, 10), (1, 3, 9, 11), (4, 6, 12, 14), (5, 7, 13, 15))),
        ([0, 3], 4, ((0, 3), (1, 2))),
        ([1, 2], 4, ((0, 3), (1, 2))),
        ([0, 1, 2], 4, None),
    ],
)
def test_partitions_of_the_world(ranks: list[int], size: int, expected: tuple[tuple[int, ...], ...] | None) -> None:
    assert partition(ranks, size) == expected
