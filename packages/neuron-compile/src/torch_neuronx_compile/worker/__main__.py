"""The child's side: take a task from the pipe, run it, answer, until the pipe closes."""

import importlib
import sys
import traceback
from multiprocessing.connection import Connection

from torch_neuronx_compile.worker.protocol import Answer, Crashed, Done, Refused, Task, WorkerTaskError


def run(task: Task) -> Answer:
    """Call the task's function and say how it went."""
    module, _, name = task.function.partition(":")
    try:
        return Done(getattr(importlib.import_module(module), name)(**task.arguments))
    except WorkerTaskError as refusal:
        return Refused(refusal.reason)
    except Exception:
        return Crashed(traceback.format_exc())


def serve(pipe: Connection) -> None:
    """Answer tasks until the other side is gone."""
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(run(task))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
