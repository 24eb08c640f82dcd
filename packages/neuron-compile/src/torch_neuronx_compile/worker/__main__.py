"""The child's side: take a task from the pipe, run it, answer, until the pipe closes.

Arguments: the descriptor of the pipe, the most bytes of address space (0: no limit), modules to import beforehand.
"""

import fcntl
import importlib
import os
import resource
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from torch_neuronx_compile.worker.protocol import Answer, Outcome, Task, WorkerTaskError


def run(task: Task) -> bytes:
    """Call the task's function and return the message that says how it went."""
    module, _, name = task.function.partition(":")
    try:
        value = getattr(importlib.import_module(module), name)(**task.arguments)
        return Answer(Outcome.DONE, value).encode()
    except WorkerTaskError as refusal:
        return Answer(Outcome.REFUSED, refusal.reason).encode()
    except MemoryError:
        return Answer(Outcome.EXHAUSTED, traceback.format_exc()).encode()
    except Exception:
        return Answer(Outcome.CRASHED, traceback.format_exc()).encode()


def serve(pipe: Connection) -> None:
    """Answer tasks until the other side is gone."""
    while True:
        try:
            task = Task.decode(pipe.recv_bytes())
        except EOFError:
            return
        with _ended_with_the_pipe(pipe):
            answer = run(task)
        try:
            pipe.send_bytes(answer)
        except BrokenPipeError:
            return


@contextmanager
def _ended_with_the_pipe(pipe: Connection) -> Iterator[None]:
    """Let the kernel end this process when the other side closes the pipe, also in the middle of native code.

    The signal is SIGIO, whose default action ends the process. PR_SET_PDEATHSIG would not do: it goes by the thread
    that started the process, and that thread may end early.
    """
    flags = fcntl.fcntl(pipe.fileno(), fcntl.F_GETFL)
    fcntl.fcntl(pipe.fileno(), fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe.fileno(), fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        if pipe.poll():  # closed before the kernel was told
            os._exit(0)
        yield
    finally:
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETFL, flags)


def main(descriptor: str, memory: str, *modules: str) -> None:
    """Serve as the arguments say."""
    if int(memory):
        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    for module in modules:
        importlib.import_module(module)
    serve(Connection(int(descriptor)))


if __name__ == "__main__":
    main(*sys.argv[1:])
