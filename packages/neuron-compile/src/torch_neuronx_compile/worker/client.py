"""The user's side of the worker: start it, hand it a task, survive whatever happens to it."""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any

from torch_neuronx_compile.worker.protocol import Answer, Crashed, Done, Refused, Task

TIME_LIMIT = 1200.0
"""Seconds that one task may take: the wait of other processes for a compilation's lock, so none waits longer."""

_DIAGNOSTIC_BYTES = 64 * 1024


class WorkerError(Exception):
    """A task did not return.

    ``reason`` is one sentence or the traceback, ``diagnostics`` what the worker wrote to its standard error meanwhile,
    ``fatal`` whether it cost the worker its life.
    """

    def __init__(self, reason: str, diagnostics: str = "", *, fatal: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.diagnostics = diagnostics
        self.fatal = fatal


class Worker:
    """One child process, started at the first task and again after it died. Tasks of several threads take turns."""

    def __init__(self, time_limit: float = TIME_LIMIT) -> None:
        self.time_limit = time_limit
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._stderr: IO[bytes] | None = None

    def call(self, function: str, **arguments: Any) -> Any:
        """Return what ``module:name`` returns for ``arguments`` in the child.

        Raises :class:`WorkerError` if it refuses, raises, dies or takes longer than ``time_limit`` seconds.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._pipe is not None
            assert self._stderr is not None
            written = os.fstat(self._stderr.fileno()).st_size
            answer = self._exchange(Task(function, arguments), written)
            match answer:
                case Done(value):
                    return value
                case Refused(reason):
                    raise WorkerError(reason, self._diagnostics(written))
                case Crashed(traceback):
                    raise WorkerError(traceback, self._diagnostics(written))

    def close(self) -> None:
        """End the child; the next task starts another."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        self._stop()
        ours, theirs = Pipe()
        self._stderr = tempfile.TemporaryFile(prefix="neuron-worker-")  # noqa: SIM115 - lives as long as the child
        # The user's sys.path, so that what the user can import (plugins' stubs) the worker can import too.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "torch_neuronx_compile.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                env=environment,
            )
        self._pipe = ours

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        if self._stderr is not None:
            self._stderr.close()
        self._process = self._pipe = self._stderr = None

    def _exchange(self, task: Task, written: int) -> Answer:
        assert self._pipe is not None
        assert self._process is not None
        try:
            self._pipe.send(task)
            answered = self._pipe.poll(self.time_limit)
            answer: Answer | None = self._pipe.recv() if answered else None
        except (EOFError, OSError):
            status = self._process.wait()
            diagnostics = self._diagnostics(written)
            self._stop()
            raise WorkerError(f"The compile worker died of {_describe(status)}.", diagnostics, fatal=True) from None
        if answer is None:
            diagnostics = self._diagnostics(written)
            self._stop()
            reason = f"The compile worker did not finish within {self.time_limit:g} s."
            raise WorkerError(reason, diagnostics, fatal=True)
        return answer

    def _diagnostics(self, start: int) -> str:
        assert self._stderr is not None
        end = os.fstat(self._stderr.fileno()).st_size
        data = os.pread(self._stderr.fileno(), _DIAGNOSTIC_BYTES, max(start, end - _DIAGNOSTIC_BYTES))
        return data.decode(errors="replace").strip()


def _describe(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


_workers: dict[int, Worker] = {}


def worker() -> Worker:
    """Return this process's worker; a forked child gets one of its own."""
    process = os.getpid()
    if process not in _workers:
        _workers[process] = Worker()
        atexit.register(_close, process)
    return _workers[process]


def _close(process: int) -> None:
    if process == os.getpid():  # a forked child inherits the parent's exit handlers
        _workers[process].close()
