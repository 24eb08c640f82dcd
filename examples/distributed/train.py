"""One training loop in three ways: DistributedDataParallel, FSDP2, tensor parallelism."""

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
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


def prepare(mode: str, device: str, mesh: DeviceMesh) -> nn.Module:
    """The model, laid out over the ranks."""
    model = make_model().to(device)
    match mode:
        case "ddp":
            return DistributedDataParallel(model, process_group=mesh.get_group("data"))
        case "fsdp":
            for layer in model:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, mesh=mesh["data"])
            return fully_shard(model, mesh=mesh["data"])
        case _:
            return parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})


def average_gradients(model: nn.Module, mesh: DeviceMesh) -> None:
    """Average over the ranks that saw other parts of the batch, which tensor parallelism leaves to the program."""
    for parameter in model.parameters():
        gradient = parameter.grad
        if gradient is not None:
            dist.all_reduce(
                gradient.to_local() if isinstance(gradient, DTensor) else gradient,
                dist.ReduceOp.SUM,
                group=mesh.get_group("data"),
            )
            gradient /= mesh["data"].size()


def train(mode: str, device: str, tp_degree: int) -> Record:
    """Train for a few steps on one kind of device and note what this rank saw."""
    tensor = tp_degree if mode == "tp" else 1
    mesh = init_device_mesh(device, (dist.get_world_size() // tensor, tensor), mesh_dim_names=("data", "tensor"))
    model = prepare(mode, device, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    record = Record()
    for step in range(STEPS):
        inputs, targets = batch_of(step, mesh.get_local_rank("data"), mesh["data"].size())
        optimizer.zero_grad()
        output = model(inputs.to(device))
        nn.functional.mse_loss(output, targets.to(device)).backward()
        if mode == "tp":
            average_gradients(model, mesh)
        gradients = gradients_of(model)
        optimizer.step()
        record.add(local(output), model, gradients)
    return record


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on each device asked for, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("ddp", "fsdp", "tp"), default="ddp")
    parser.add_argument("--device", choices=DEVICES, default="both")
    parser.add_argument("--tp-degree", type=int, default=2, help="ranks that share one model in mode tp")
    options = parser.parse_args(arguments)
    if dist.get_world_size() % options.tp_degree and options.mode == "tp":
        parser.error(f"--tp-degree {options.tp_degree} does not divide {dist.get_world_size()} ranks")
    records = {device: train(options.mode, device, options.tp_degree) for device in DEVICES[options.device]}
    print(compare(records), flush=True)


if __name__ == "__main__":
    with process_group():
        main()
