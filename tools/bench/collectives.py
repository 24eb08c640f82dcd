"""Measures collectives and steps of DDP on device tensors against the same on CPU tensors with Gloo, in one run.

python -m tools.bench.collectives

Two ranks, one thread each.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
DEVICES = ("cpu", "neuron")
SIZES = {"4 KiB": 2**12, "1 MiB": 2**20, "64 MiB": 2**26}
"""Bytes of the larger side: of the result of all_gather, of the input of reduce_scatter."""


@dataclass(frozen=True)
class Turns:
    """How often each kind of call gets its turn, and how many calls a turn has."""

    number: int
    calls: int


TURNS = {"4 KiB": Turns(100, 20), "1 MiB": Turns(100, 10), "64 MiB": Turns(20, 2)}


def collective(name: str, nbytes: int, device: str) -> Callable[[], object]:
    """A call that runs one float32 collective on tensors made before."""
    whole = torch.ones(nbytes // 4, device=device)
    part = torch.ones(nbytes // 4 // RANKS, device=device)
    match name:
        case "all_reduce":
            whole.zero_()
            return lambda: dist.all_reduce(whole)
        case "all_gather":
            return lambda: dist.all_gather_single(whole, part)
        case _:
            return lambda: dist.reduce_scatter_single(part, whole)


@dataclass(frozen=True)
class Perceptron:
    """A model of equal layers with a batch of its inputs."""

    layers: int
    width: int
    batch: int


PERCEPTRONS = {"8 layers of 512": Perceptron(8, 512, 64), "24 layers of 64": Perceptron(24, 64, 64)}
STEPS = {"8 layers of 512": Turns(30, 4), "24 layers of 64": Turns(100, 8)}


def training_step(sizes: Perceptron, device: str) -> Callable[[], object]:
    """A call that runs one step of SGD on a float32 model made before, in DDP."""
    torch.manual_seed(0)
    layers = [
        layer for _ in range(sizes.layers) for layer in (torch.nn.Linear(sizes.width, sizes.width), torch.nn.ReLU())
    ]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batch = torch.randn(sizes.batch, sizes.width).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def median_seconds(call: Callable[[], object], calls: int) -> float:
    """The median time of one call."""
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def quiet_seconds(calls: Mapping[str, Callable[[], object]], turns: Turns) -> dict[str, float]:
    """The time of each call when the machine does little else: the lower quartile of the medians of its turns.

    The calls take turns, in one order and then in the other, so that what the machine does besides falls on all alike.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for call in calls.values():
        median_seconds(call, turns.calls)
    for _ in range(turns.number):
        for name in order:
            found[name].append(median_seconds(calls[name], turns.calls))
        order.reverse()
    return {name: statistics.quantiles(times, n=4)[0] for name, times in found.items()}


def report(rank: int, what: str, seconds: Mapping[str, float]) -> None:
    """Rank 0 prints a row of the table."""
    if rank == 0:
        times = " | ".join(f"{seconds[device] * 1e3:.3f} ms" for device in DEVICES)
        print(f"| {what} | {times} | {seconds['neuron'] / seconds['cpu']:.2f} |", flush=True)


def run(rank: int, store: str) -> None:
    """What one rank does; rank 0 prints the table."""
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,neuron:neuron", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    if rank == 0:
        print("| what | size | Gloo, CPU tensors | neuron | ratio |\n|---|---|---|---|---|")
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        for size, nbytes in SIZES.items():
            calls = {device: collective(name, nbytes, device) for device in DEVICES}
            report(rank, f"{name} | {size}", quiet_seconds(calls, TURNS[size]))
    for size, perceptron in PERCEPTRONS.items():
        steps = {device: training_step(perceptron, device) for device in DEVICES}
        report(rank, f"DDP step | {size}", quiet_seconds(steps, STEPS[size]))
    dist.destroy_process_group()


def main() -> int:
    """Run the bench."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (str(Path(folder) / "store"),)
        mp.spawn(run, args=arguments, nprocs=RANKS)  # type: ignore[attr-defined, no-untyped-call]
    return 0


if __name__ == "__main__":
    sys.exit(main())
