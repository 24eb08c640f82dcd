"""PyTorch's parallelisms, one step each, against the CPU."""

from collections.abc import Callable

import pytest
from ranks import programs
from ranks.world import World


@pytest.mark.parametrize(
    "program",
    [programs.ddp_step, programs.ddp_no_sync_and_hook, programs.fsdp2_step, programs.tensor_parallel_step],
    ids=lambda program: program.__name__,
)
def test_a_step_equals_the_cpus(world: World, program: Callable[[], None]) -> None:
    world.run(program)
