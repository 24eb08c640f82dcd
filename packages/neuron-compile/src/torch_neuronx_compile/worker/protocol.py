"""What the two sides of the worker say to each other, pickled over a pipe that only they hold."""

from dataclasses import dataclass
from typing import Any


class WorkerTaskError(Exception):
    """Raised by a task in the worker to say what could not be done; anything else it raises is a fault of the task."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Task:
    """A function to call, by ``module:name``, and its arguments: bytes, strings, numbers and containers of them."""

    function: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """The task returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """The task raised :class:`WorkerTaskError`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """The task raised something else."""

    traceback: str


Answer = Done | Refused | Crashed
