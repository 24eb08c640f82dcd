"""A pool of real processes, one per rank, that run functions in one process group until the pool is closed."""

import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import torch

from ranks.launch import forking

BACKENDS = "cpu:gloo,neuron:neuron"
_LIMIT = 300
"""Seconds for one call; the machine may be busy."""
_GROUP_LIMIT = timedelta(seconds=200)
_GRACE = 2
"""Seconds the other ranks get once one has failed: most often they wait for it."""


class RankError(AssertionError):
    """A function failed on a rank, or did not end there."""


class World:
    """``size`` processes in a process group that has Gloo for CPU tensors and ``neuron`` for device tensors."""

    def __init__(self, size: int, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.size = size
        self.broken = False  # after an error the ranks are out of step
        context = forking()
        store = folder / f"store_{size}"
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(rank, size, str(store), theirs, environment or {}), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self._collect(_LIMIT)

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call ``function(*args)`` on every rank and return the results by rank."""
        for pipe in self._pipes:
            pipe.send((function, args))
        return self._collect(_LIMIT)

    def _collect(self, limit: float) -> list[Any]:
        results, errors = [], []
        for rank, pipe in enumerate(self._pipes):
            patience = _GRACE if errors else limit
            try:
                fine, result = pipe.recv() if pipe.poll(patience) else (False, f"no answer within {patience} s")
            except EOFError:
                fine, result = False, "the process died"
            results.append(result)
            if not fine:
                errors.append(f"rank {rank}: {result}")
        if errors:
            self.broken = True
            raise RankError("\n".join(errors))
        return results

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(0 if self.broken else 20)
            if process.exitcode is None:
                process.kill()
                process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(rank: int, size: int, store: str, pipe: Connection, environment: dict[str, str]) -> None:
    import torch.distributed as dist

    os.environ.update(environment)
    dist.set_debug_level_from_env()  # torch reads it when it is imported, which was before this process began
    torch.set_num_threads(1)

    def start() -> None:
        dist.init_process_group(
            BACKENDS, init_method=f"file://{store}", rank=rank, world_size=size, timeout=_GROUP_LIMIT
        )

    job: tuple[Callable[..., Any], tuple[Any, ...]] = (start, ())
    while True:
        try:
            function, args = job
            answer = (True, function(*args))
        except Exception:
            answer = (False, traceback.format_exc())
        pipe.send(answer)
        try:
            job = pipe.recv()
        except EOFError:
            break
    dist.destroy_process_group()
