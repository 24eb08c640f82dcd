"""Two dimensions: each layer is cut over `tensor` ranks, and what is left of it sharded over `data` ranks by FSDP2."""

import argparse
from collections.abc import Sequence

import torch
import torch.distributed as dist
from common import (
    DEVICES,
    LEARNING_RATE,
    STEPS,
    Record,
    batch_of,
    compare,
    gradients_of,
    local,
    make_model,
    process_group,
)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def train(device: str, tp_degree: int) -> Record:
    """Train on a mesh of data x tensor ranks."""
    mesh = init_device_mesh(device, (dist.get_world_size() // tp_degree, tp_degree), mesh_dim_names=("data", "tensor"))
    model = make_model().to(device)
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, eps=1e-5)
    record = Record()
    for step in range(STEPS):
        inputs, targets = batch_of(step, mesh.get_local_rank("data"), mesh["data"].size())
        optimizer.zero_grad()
        output = model(inputs.to(device))
        nn.functional.mse_loss(output, targets.to(device)).backward()
        gradients = gradients_of(model)
        optimizer.step()
        record.add(local(output), model, gradients)
    return record


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on each device asked for, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=DEVICES, default="both")
    parser.add_argument("--tp-degree", type=int, default=2)
    options = parser.parse_args(arguments)
    if dist.get_world_size() % options.tp_degree:
        parser.error(f"--tp-degree {options.tp_degree} does not divide {dist.get_world_size()} ranks")
    records = {device: train(device, options.tp_degree) for device in DEVICES[options.device]}
    print(compare(records), flush=True)


if __name__ == "__main__":
    with process_group():
        main()
