"""One child: start it, hand it a task, survive whatever happens to it."""

import contextlib
import fcntl
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

from torch_neuronx import config
from torch_neuronx_compile.worker.protocol import Answer, Outcome, Task

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


class Caller(Protocol):
    """What takes tasks: one worker, or a pool of them."""

    def call(self, function: str, **arguments: Any) -> Any:
        """Return what ``module:name`` returns for ``arguments`` in a child; raises :class:`WorkerError`."""


class Worker:
    """One child process, started at the first task and again after it died. Tasks of several threads take turns.

    ``memory_limit`` is the most bytes of address space of the child; by default
    ``TORCH_NEURONX_COMPILE_WORKER_MEMORY``, read when the child starts.
    """

    def __init__(
        self,
        time_limit: float = TIME_LIMIT,
        memory_limit: int | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Take tasks; ``meanwhile`` is called after each has been handed over."""
        self.time_limit = time_limit
        self._meanwhile = meanwhile
        self.memory_limit = memory_limit
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._output = -1
        """Descriptor of what the child writes to its standard output and error."""

    @property
    def alive(self) -> bool:
        """Whether there is a child."""
        return self._process is not None and self._process.poll() is None

    @property
    def busy(self) -> bool:
        """Whether a task is under way, or the child is about to start."""
        return self._lock.locked()

    def start(self, preload: Sequence[str] = ()) -> None:
        """Start the child if there is none; it imports the modules ``preload`` before its first task."""
        with self._lock:
            if not self.alive:
                self._start(preload)

    def call(self, function: str, **arguments: Any) -> Any:
        """Return what ``module:name`` returns for ``arguments`` in the child.

        Raises :class:`WorkerError` if it refuses, raises, dies, runs out of memory or takes longer than ``time_limit``
        seconds, and ``TypeError`` for an argument that is no plain value. An exception that interrupts the wait, such
        as ``KeyboardInterrupt``, ends the child.
        """
        task = Task(function, arguments).encode()
        with self._lock:
            try:
                if not self.alive:
                    self._start()
                answer = self._exchange(task)
                diagnostics = "" if answer.outcome is Outcome.DONE else self._diagnostics()
                os.ftruncate(self._output, 0)
            except BaseException:  # the child is dead, or busy with a task that nobody waits for
                self._stop()
                raise
            match answer.outcome:
                case Outcome.DONE:
                    return answer.value
                case Outcome.EXHAUSTED:
                    self._stop()  # gives back what the task had taken
                    reason = f"The compile worker ran out of memory{self._limit()}."
                    raise WorkerError(reason, f"{answer.value}{diagnostics}", fatal=True)
                case _:
                    raise WorkerError(answer.value, diagnostics)

    def close(self) -> None:
        """End the child; the next task starts another."""
        with self._lock:
            self._stop()

    def end(self) -> None:
        """Kill the child without waiting for a task's thread; for the end of this process."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def abandon(self) -> None:
        """Forget a child that belongs to the process which this one was forked from."""
        if self._process is not None:
            self._process.returncode = 0  # not this process's child: nothing to wait for
        self._release()

    def _start(self, preload: Sequence[str] = ()) -> None:
        self._stop()
        self._output = os.memfd_create("neuron-compile-worker")
        fcntl.fcntl(self._output, fcntl.F_SETFL, os.O_APPEND)  # so that it can be emptied while the child holds it
        # The user's sys.path, so that what the user can import (plugins' stubs) the worker can import too. Without
        # site-packages' .pth files (-S) plugins that are installed in place would be missing; they cost 3 ms.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        self._pipe, theirs = Pipe()
        with theirs:
            arguments = (str(theirs.fileno()), str(self._memory() or 0), *preload)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "torch_neuronx_compile.worker", *arguments],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal is the user's program's to handle
            )

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._release()

    def _release(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._output >= 0:
            os.close(self._output)
        self._process, self._pipe, self._output = None, None, -1

    def _exchange(self, task: bytes) -> Answer:
        assert self._pipe is not None
        assert self._process is not None
        try:
            self._pipe.send_bytes(task)
            if self._meanwhile is not None:
                self._meanwhile()
            if self._pipe.poll(self.time_limit):
                return Answer.decode(self._pipe.recv_bytes())
        except (EOFError, OSError):
            status = self._process.wait()
            reason = f"The compile worker died of {_describe(status)}."
            raise WorkerError(reason, self._diagnostics(), fatal=True) from None
        except pickle.UnpicklingError as error:
            raise WorkerError(str(error), self._diagnostics(), fatal=True) from None
        reason = f"The compile worker did not finish within {self.time_limit:g} s."
        raise WorkerError(reason, self._diagnostics(), fatal=True)

    def _diagnostics(self) -> str:
        end = os.fstat(self._output).st_size
        data = os.pread(self._output, _DIAGNOSTIC_BYTES, max(0, end - _DIAGNOSTIC_BYTES))
        return data.decode(errors="replace").strip()

    def _memory(self) -> int | None:
        return config.get(config.COMPILE_WORKER_MEMORY) if self.memory_limit is None else self.memory_limit

    def _limit(self) -> str:
        limit = self._memory()
        return "" if limit is None else f" ({config.COMPILE_WORKER_MEMORY.name} allows {limit} bytes)"


def _describe(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-status).name
        return f"{name}, as where the system's memory runs out" if name == "SIGKILL" else name
    return f"signal {-status}"
