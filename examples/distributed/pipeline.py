"""A model cut into stages, one per rank (two with the interleaved schedule), fed with micro-batches."""

import argparse
from collections.abc import Sequence

import torch
import torch.distributed as dist
from common import DEVICES, LEARNING_RATE, SEED, Record, compare, gradients_of, process_group
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

STEPS = 20
MICROBATCHES = 8
WIDTH, BATCH = 32, 64
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


def make_block(stage: int) -> nn.Module:
    """The layers of one stage."""
    torch.manual_seed(SEED + stage)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def train(schedule: str, device: str) -> Record:
    """Train this rank's stages."""
    rank, size = dist.get_rank(), dist.get_world_size()
    count = 2 * size if schedule == "interleaved" else size
    mine = nn.ModuleList(make_block(number) for number in range(rank, count, size)).to(device)
    where = torch.device(device, 0) if device == "neuron" else torch.device(device)
    stages = [PipelineStage(block, rank + i * size, count, where) for i, block in enumerate(mine)]
    runner = SCHEDULES[schedule](
        stages if schedule == "interleaved" else stages[0], MICROBATCHES, loss_fn=nn.functional.mse_loss
    )
    optimizer = torch.optim.SGD(mine.parameters(), lr=LEARNING_RATE)
    record = Record()
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(SEED + 100 + step)
        inputs, targets = (torch.randn(BATCH, WIDTH, generator=generator).to(device) for _ in range(2))
        optimizer.zero_grad()
        output = runner.step(*([inputs] if rank == 0 else []), **({"target": targets} if rank == size - 1 else {}))
        gradients = gradients_of(mine)
        optimizer.step()
        record.add(output, mine, gradients)
    return record


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the schedule on each device asked for, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--device", choices=DEVICES, default="both")
    options = parser.parse_args(arguments)
    print(compare({device: train(options.schedule, device) for device in DEVICES[options.device]}), flush=True)


if __name__ == "__main__":
    with process_group():
        main()
