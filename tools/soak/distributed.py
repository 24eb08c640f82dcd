"""Runs process groups and collectives for long, and kills ranks; memory, descriptors and threads must stay flat.

    python -m tools.soak.distributed                                    # 1,000 groups, 10,000 collectives, 50 kills
    python -m tools.soak.distributed --groups 50 --collectives 500 --kills 3    # needs pip install psutil

Ends with exit code 1 if something grew, or if a job did not start again after a kill.
"""

import argparse
import gc
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2
ROUNDS = 5
"""The work is done in this many equal parts; the first warms up, the last must not need more than the second."""
SLACK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Use:
    """What a process holds."""

    rss: int
    descriptors: int
    threads: int
    device_bytes: int
    python_threads: int


def measure() -> Use:
    """Measure this process."""
    gc.collect()
    time.sleep(0.5)  # the transport's threads let go of a finished work a moment later
    process = psutil.Process()
    return Use(
        rss=process.memory_info().rss,
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        device_bytes=torch.accelerator.memory_allocated(),
        python_threads=threading.active_count(),
    )


def growth(uses: list[Use]) -> list[str]:
    """Say what grew between the second round and the last."""
    first, last = uses[1], uses[-1]
    grown = [
        f"{name} grew from {getattr(first, name)} to {getattr(last, name)}"
        for name in ("descriptors", "threads", "device_bytes", "python_threads")
        if getattr(last, name) > getattr(first, name)
    ]
    if last.rss > first.rss + SLACK_BYTES:
        grown.append(f"memory grew from {first.rss >> 20} MiB to {last.rss >> 20} MiB")
    return grown


def _in_rounds(step: Callable[[], None], count: int) -> list[Use]:
    uses = []
    for _ in range(ROUNDS):
        for _ in range(max(1, count // ROUNDS)):
            step()
        uses.append(measure())
    return uses


def make_group() -> None:
    """Make a group, use it, and destroy it."""
    group = dist.new_group(backend="neuron")
    tensor = torch.ones(8, device="neuron")
    dist.all_reduce(tensor, group=group)
    dist.destroy_process_group(group)


def run_collectives() -> None:
    """Run a collective of a random kind and size, the same on every rank."""
    size = _shared.choice((1, 1000, 100_000))
    tensor = torch.ones(size, device="neuron", dtype=_shared.choice((torch.float32, torch.bfloat16, torch.int64)))
    many = torch.empty(RANKS * size, device="neuron", dtype=tensor.dtype)
    match _shared.randrange(5):
        case 0:
            dist.all_reduce(tensor)
        case 1:
            dist.all_gather_single(many, tensor)
        case 2:
            dist.reduce_scatter_single(tensor, many.zero_())
        case 3:
            dist.all_to_all_single(torch.empty_like(many), many.zero_())
        case _:
            dist.broadcast(tensor, 0)


_shared = random.Random(0)


def _start(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group(
        "neuron", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=timedelta(seconds=30)
    )


def soak(rank: int, store: str, groups: int, collectives: int, pipe: Connection) -> None:
    """What a rank of the first part does."""
    _start(rank, store)
    found = {}
    for name, step, count in (("groups", make_group, groups), ("collectives", run_collectives, collectives)):
        started = time.monotonic()
        uses = _in_rounds(step, count)
        found[name] = {
            "count": count,
            "seconds": round(time.monotonic() - started, 1),
            "second": asdict(uses[1]),
            "last": asdict(uses[-1]),
            "grew": growth(uses),
        }
    pipe.send(found)
    dist.destroy_process_group()


def work_forever(rank: int, store: str, pipe: Connection) -> None:
    """What a rank does until it is killed, or hears of the other's death."""
    _start(rank, store)
    pipe.send("started")
    try:
        while True:
            run_collectives()
    except RuntimeError as error:
        pipe.send(str(error))
        os._exit(1)


def kill_ranks(kills: int) -> list[str]:
    """Kill a random rank of a job again and again; every time the other must end, and the job start again."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed"])
    chance = random.Random(1)
    troubles = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(kills):
            ranks: list[tuple[Any, Connection]] = []
            for rank in range(RANKS):
                ours, theirs = context.Pipe()
                process = context.Process(target=work_forever, args=(rank, f"{folder}/store{number}", theirs))
                process.start()
                theirs.close()
                ranks.append((process, ours))
            if not all(pipe.poll(120) and pipe.recv() == "started" for _, pipe in ranks):
                troubles.append(f"job {number} did not start")
            time.sleep(chance.uniform(0, 0.2))
            victim = chance.randrange(RANKS)
            os.kill(ranks[victim][0].pid, signal.SIGKILL)
            process, pipe = ranks[1 - victim]
            process.join(60)
            if process.exitcode != 1:
                troubles.append(f"kill {number}: the other rank ended with {process.exitcode}")
            elif f"rank {victim} of the group did not arrive" not in (text := pipe.recv()):
                troubles.append(f"kill {number}: the error does not name rank {victim}: {text}")
            for process, pipe in ranks:
                process.kill()
                process.join()
                pipe.close()
    return troubles


def main() -> int:
    """Run both parts and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--collectives", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        pipes, processes = [], []
        for rank in range(RANKS):
            ours, theirs = context.Pipe()
            store = str(Path(folder) / "store")
            processes.append(
                context.Process(target=soak, args=(rank, store, options.groups, options.collectives, theirs))
            )
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        found = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
        troubles = [
            f"rank {r}, {part}: {grown}" for r, f in enumerate(found) for part in f for grown in f[part]["grew"]
        ]
        started = time.monotonic()
        troubles += kill_ranks(options.kills)
        seconds = time.monotonic() - started
    print(json.dumps(found[0], indent=1))
    print(f"{options.kills} kills in {seconds:.0f} s; {len(troubles)} troubles")
    print("\n".join(troubles))
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
