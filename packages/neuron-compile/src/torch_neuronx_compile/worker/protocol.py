"""What the two sides of the worker say to each other over a pipe that only they hold.

A message is a tuple of plain values: ``None``, truth values, numbers, strings, bytes, and lists, tuples, sets and
dictionaries of them. It is pickled, because pickle takes large bytes as they are, with every global refused in both
directions: neither side can make the other import or call anything by what it sends.
"""

import io
import pickle
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn


class WorkerTaskError(Exception):
    """Raised by a task in the worker to say what could not be done; anything else it raises is a fault of the task."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Outcome(StrEnum):
    """How a task ended."""

    DONE = "done"
    """The task returned ``value``."""
    REFUSED = "refused"
    """The task raised :class:`WorkerTaskError`; ``value`` is the reason."""
    CRASHED = "crashed"
    """The task raised something else; ``value`` is the traceback."""
    EXHAUSTED = "exhausted"
    """The task ran out of memory; ``value`` is the traceback."""


@dataclass(frozen=True, slots=True)
class Task:
    """A function to call, by ``module:name``, and its arguments: plain values."""

    function: str
    arguments: dict[str, Any]

    def encode(self) -> bytes:
        """Return the message; raises ``TypeError`` for an argument that is no plain value."""
        return encode((self.function, self.arguments))

    @classmethod
    def decode(cls, message: bytes) -> "Task":
        """Read a message; raises ``pickle.UnpicklingError`` for one that holds more than plain values."""
        return cls(*decode(message))


@dataclass(frozen=True, slots=True)
class Answer:
    """How a task ended, and what it gave: a plain value."""

    outcome: Outcome
    value: Any

    def encode(self) -> bytes:
        """Return the message; raises ``TypeError`` for a value that is not plain."""
        return encode((str(self.outcome), self.value))

    @classmethod
    def decode(cls, message: bytes) -> "Answer":
        """Read a message; raises ``pickle.UnpicklingError`` for one that holds more than plain values."""
        outcome, value = decode(message)
        return cls(Outcome(outcome), value)


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> NoReturn:
        raise TypeError(f"A {type(value).__name__} does not cross to or from the compile worker; plain values do.")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(
            f"A message of the compile worker names {module}.{name}; it may hold plain values."
        )


def encode(value: Any) -> bytes:
    """Pickle a plain value; raises ``TypeError`` for any other."""
    output = io.BytesIO()
    _PlainPickler(output, pickle.HIGHEST_PROTOCOL).dump(value)
    return output.getvalue()


def decode(message: bytes) -> Any:
    """Read a plain value; raises ``pickle.UnpicklingError`` for a message that holds any other."""
    return _PlainUnpickler(io.BytesIO(message)).load()
