"""Measures collectives of device tensors against the same on CPU tensors with Gloo, in one run on two ranks.

python -m tools.bench.collectives
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2
SIZES = {"4 KiB": 2**12, "1 MiB": 2**20, "64 MiB": 2**26}
"""Bytes of the larger side: of the result of all_gather, of the input of reduce_scatter."""
REPETITIONS = {"4 KiB": 300, "1 MiB": 60, "64 MiB": 6}


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


def median_seconds(call: Callable[[], object], repetitions: int) -> float:
    """The median time of one call, after a few that warm up."""
    times = []
    for number in range(repetitions + 3):
        started = time.perf_counter()
        call()
        if number >= 3:
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def run(rank: int, store: str) -> None:
    """What one rank does; rank 0 prints the table."""
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,neuron:neuron", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    if rank == 0:
        print("| collective | size | Gloo, CPU tensors | neuron | ratio |\n|---|---|---|---|---|")
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        for size, nbytes in SIZES.items():
            calls = {device: collective(name, nbytes, device) for device in ("cpu", "neuron")}
            # By turns, so that what else the machine does falls on both.
            found: dict[str, list[float]] = {device: [] for device in calls}
            for _ in range(3):
                for device, call in calls.items():
                    found[device].append(median_seconds(call, REPETITIONS[size] // 3))
            cpu, neuron = (min(found[device]) for device in calls)
            if rank == 0:
                print(
                    f"| {name} | {size} | {cpu * 1e3:.3f} ms | {neuron * 1e3:.3f} ms | {neuron / cpu:.2f} |", flush=True
                )
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
