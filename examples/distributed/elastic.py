"""Training that goes on where it stopped when torchrun starts the ranks again (`--max-restarts`)."""

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from common import LEARNING_RATE, batch_of, make_model, process_group
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 6


def newest(folder: Path) -> Path | None:
    """The last checkpoint that was written to its end."""
    found = sorted(path for path in folder.glob("step-*") if (path / ".metadata").exists())
    return found[-1] if found else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with a checkpoint after each step; with `--crash-at` rank 1 is killed there, once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--crash-at", type=int)
    options = parser.parse_args(arguments)
    rank, size = dist.get_rank(), dist.get_world_size()
    model = make_model().to("neuron")
    fully_shard(model, mesh=init_device_mesh("neuron", (size,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)

    start = 0
    if (saved := newest(options.folder)) is not None:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": 0}
        checkpoint.load(state, checkpoint_id=saved)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        start = int(state["step"])
    if rank == 0:
        print(f"starting at step {start}", flush=True)

    for step in range(start, STEPS):
        if step == options.crash_at and rank == 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, targets = batch_of(step, rank, size)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs.to("neuron")), targets.to("neuron"))
        loss.backward()
        optimizer.step()
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": step + 1}
        checkpoint.save(state, checkpoint_id=options.folder / f"step-{step + 1:04}")
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    if rank == 0:
        print(f"ended after step {STEPS} with loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    with process_group():
        main()
