"""Works, futures, batches, what is refused, and what memory collectives take."""

from collections.abc import Callable

import pytest
from ranks import programs
from ranks.world import World


@pytest.mark.parametrize(
    "program",
    [
        programs.work_of_a_collective,
        programs.future_after_the_end,
        programs.futures_while_works_end,
        programs.work_outlives_its_tensors,
        programs.futures_of_sends_and_receives,
        programs.receive_from_any,
        programs.coalescing_of_single_calls,
        programs.wrong_arguments,
        programs.tensor_factor,
        programs.reduce_leaves_the_others_alone,
        programs.memory_of_plain_tensors,
        programs.memory_of_copies,
        programs.objects,
        programs.functional_collectives,
    ],
    ids=lambda program: program.__name__,
)
def test_on_every_rank(world: World, program: Callable[[], None]) -> None:
    world.run(program)


def test_waits_time_out(pair: World) -> None:
    pair.run(programs.make_side_group)
    pair.run(programs.waits_time_out)


def test_groups_come_and_go(pair: World) -> None:
    pair.run(programs.many_groups, 20)
