"""The user's side of the workers: those of this process."""

import atexit
import contextlib
import os
import threading

from torch_neuronx_compile.worker.child import Caller, Worker, WorkerError
from torch_neuronx_compile.worker.pool import WorkerPool

__all__ = ["Caller", "Worker", "WorkerError", "start_early", "worker"]


class _Process:
    """What belongs to one process and is made anew in a forked child."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: WorkerPool | None = None
        self.prepared = False


_process = _Process()


def worker() -> WorkerPool:
    """Return this process's workers; a forked child gets its own."""
    with _process.lock:
        if not _process.prepared:
            os.register_at_fork(after_in_child=_forget)
            atexit.register(_close)
            _process.prepared = True
        if _process.pool is None:
            _process.pool = WorkerPool()
        return _process.pool


def start_early(count: int = 1) -> None:
    """Start this process's first workers in the background, so that they are ready when the first graphs are."""
    with contextlib.suppress(OSError):  # no process can be started now; the first task will say so
        worker().start_early(count)


def _forget() -> None:
    """Run in a forked child: the parent's workers and locks are the parent's."""
    _process.lock = threading.Lock()
    if _process.pool is not None:
        _process.pool.abandon()
        _process.pool = None


def _close() -> None:
    if _process.pool is not None:
        _process.pool.end()
