"""PyTorch's parallelisms: twenty steps on the device equal twenty steps of the same program on the CPU with Gloo."""

from pathlib import Path

import pytest
from conftest import Worlds
from ranks import parallelisms
from ranks.parallelisms import Program
from ranks.world import World

FLOAT32 = (1e-4, 1e-5)
"""Relative and absolute tolerance: sums in another order, over twenty steps."""
HALF = (2e-2, 2e-3)
"""The same where values pass through 16 bits."""
APPROXIMATE = (1e-2, 1e-3)
"""The same where gradients are approximated bucket by bucket, and compiling makes other buckets: on the CPU, PyTorch's
own `aot_eager` is as far from eager mode."""


@pytest.mark.parametrize(
    ("program", "tolerance"),
    [
        (parallelisms.ddp, FLOAT32),
        (parallelisms.ddp_views, FLOAT32),
        (parallelisms.ddp_static_graph, FLOAT32),
        (parallelisms.ddp_unused_parameters, FLOAT32),
        (parallelisms.ddp_fp16_hook, HALF),
        (parallelisms.ddp_power_sgd_hook, FLOAT32),
        (parallelisms.ddp_join, FLOAT32),
        (parallelisms.zero_optimizer, FLOAT32),
        (parallelisms.fsdp1, FLOAT32),
        (parallelisms.fsdp2, FLOAT32),
        (parallelisms.fsdp2_keeps_parameters, FLOAT32),
        (parallelisms.fsdp2_mixed_precision, HALF),
        (parallelisms.fsdp2_offload, FLOAT32),
        (parallelisms.pipeline_gpipe, FLOAT32),
        (parallelisms.pipeline_1f1b, FLOAT32),
        (parallelisms.pipeline_interleaved, FLOAT32),
        (parallelisms.pipeline_breadth_first, FLOAT32),
        (parallelisms.pipeline_zero_bubble, FLOAT32),
        (parallelisms.tensor_parallel, FLOAT32),
        (parallelisms.expert_parallel, FLOAT32),
        (parallelisms.context_parallel, FLOAT32),
        (parallelisms.context_parallel_ring, FLOAT32),
        (parallelisms.context_parallel_ring_whole, FLOAT32),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_equals_the_cpu(four: World, program: Program, tolerance: tuple[float, float]) -> None:
    four.run(parallelisms.compare_devices, program, *tolerance)


@pytest.mark.parametrize(
    ("program", "tolerance", "ranks"),
    [
        (parallelisms.ddp_views, FLOAT32, 2),
        (parallelisms.ddp_static_graph, FLOAT32, 2),
        (parallelisms.ddp_fp16_hook, HALF, 2),
        (parallelisms.ddp_unused_parameters, FLOAT32, 2),
        (parallelisms.ddp_power_sgd_hook, APPROXIMATE, 2),
        (parallelisms.ddp_join, FLOAT32, 2),
        (parallelisms.zero_optimizer, FLOAT32, 2),
        (parallelisms.fsdp1, FLOAT32, 2),
        (parallelisms.fsdp2, FLOAT32, 2),
        (parallelisms.fsdp2_mixed_precision, HALF, 2),
        (parallelisms.fsdp2_offload, FLOAT32, 2),
        (parallelisms.pipeline_1f1b, FLOAT32, 4),  # stages that are neither the first nor the last
        (parallelisms.tensor_parallel, FLOAT32, 4),
        (parallelisms.expert_parallel, FLOAT32, 2),
        (parallelisms.context_parallel, FLOAT32, 2),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_compiled_equals_the_cpu(
    worlds: Worlds, program: Program, tolerance: tuple[float, float], ranks: int, tmp_path: Path
) -> None:
    """Where collectives stay outside of graphs, two ranks compile what four would."""
    worlds.of(ranks).run(parallelisms.compare_devices, program, *tolerance, str(tmp_path))


def test_what_context_parallel_takes_and_what_not(pair: World) -> None:
    pair.run(parallelisms.context_parallel_takes, 2)
    pair.run(parallelisms.context_parallel_refuses, 2)
