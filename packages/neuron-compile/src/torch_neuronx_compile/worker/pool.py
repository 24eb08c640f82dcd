"""The workers of a process: a few, shared by its threads, so that several graphs compile at the same time."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch_neuronx_compile.worker.child import TIME_LIMIT, Worker

SIZE = max(1, min(2, len(os.sched_getaffinity(0))))
"""Workers of a process at most: as many as its processors, and two, for each takes 170 MB."""

PRELOAD = ("torch_neuronx_compile.worker.lower", "torch_neuronx_compile.compilers.emulator.xla")
"""What a worker that is started early imports: the tasks that every graph needs."""


class WorkerPool:
    """Up to ``size`` workers. A task goes to a worker that runs already, else to a new one, else it waits for its turn.

    ``time_limit`` is per task, in seconds, and does not count the wait.
    """

    def __init__(self, size: int = SIZE, time_limit: float = TIME_LIMIT) -> None:
        self._errands: list[Callable[[], object]] = []
        self._workers = tuple(Worker(time_limit, meanwhile=self._run_errands) for _ in range(size))
        self._idle = list(self._workers)
        self._freed = threading.Condition()

    def call(self, function: str, **arguments: Any) -> Any:
        """Return what ``module:name`` returns for ``arguments`` in one of the children; raises as ``Worker.call``."""
        with self._take() as worker:
            return worker.call(function, **arguments)

    def start_early(self, count: int = 1) -> None:
        """Start workers until ``count`` run; they import what lowering needs while this process goes on."""
        for worker in self._workers[:count]:
            if not worker.alive and not worker.busy:
                worker.start(PRELOAD)

    def meanwhile(self, errand: Callable[[], object]) -> None:
        """Run ``errand`` in a thread of its own once the next task has been handed over."""
        self._errands.append(errand)

    def _run_errands(self) -> None:
        while self._errands:
            with contextlib.suppress(IndexError):  # another thread took it
                threading.Thread(target=self._errands.pop(), name="get-ready").start()

    def close(self) -> None:
        """End every child once its task is over; the next task starts another."""
        for worker in self._workers:
            worker.close()

    def end(self) -> None:
        """Kill every child, also one with a task; for the end of this process."""
        for worker in self._workers:
            worker.end()

    def abandon(self) -> None:
        """Forget children that belong to the process which this one was forked from."""
        for worker in self._workers:
            worker.abandon()

    @contextmanager
    def _take(self) -> Iterator[Worker]:
        with self._freed:
            self._freed.wait_for(lambda: self._idle)
            worker = next((worker for worker in self._idle if worker.alive), self._idle[0])
            self._idle.remove(worker)
        try:
            yield worker
        finally:
            with self._freed:
                self._idle.append(worker)
                self._freed.notify()
