"""Whether modules keep the lines of the user's program as locations. Runs in the worker.

The canonical program has none: they would make equal programs unequal. A program that is written down for people keeps
them on its whole way from one library to the other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_kept: ContextVar[bool] = ContextVar("locations_kept", default=False)
kept = _kept.get


@contextmanager
def keep_locations() -> Iterator[None]:
    """Keep locations in what is lowered inside the block."""
    token = _kept.set(True)
    try:
        yield
    finally:
        _kept.reset(token)
