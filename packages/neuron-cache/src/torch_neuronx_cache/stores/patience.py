"""How a remote store is asked: a few times, with pauses in between, and then not at all for a while."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from torch_neuronx_cache.errors import StoreError

ATTEMPTS = 3
FIRST_PAUSE = 0.2
"""Seconds before the second attempt; the pause doubles, with some chance in it, so that ranks do not retry in step."""
DOWN_TIME = 30.0
"""Seconds for which a store that failed is not asked again."""

T = TypeVar("T")


class Patience:
    """The patience with one store. Several threads may share it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._down_until = 0.0
        self._failure = ""

    def ask(self, what: str, do: Callable[[], T]) -> T | None:
        """Do it, again after failures; None where something is not there (FileNotFoundError).

        Raises :class:`StoreError` after the last attempt, and without an attempt while the store counts as down.
        ``what`` completes "could not be".
        """
        if time.monotonic() < self._down_until:
            raise StoreError(f"{self._failure} It is not asked again for up to {DOWN_TIME:g} s.")
        pause = FIRST_PAUSE
        attempt = 1
        while True:
            try:
                return do()
            except FileNotFoundError:
                return None
            except Exception as error:  # every client library raises its own
                if attempt == ATTEMPTS or isinstance(error, PermissionError | ImportError):
                    self._down_until = time.monotonic() + DOWN_TIME
                    times = "once" if attempt == 1 else f"{attempt} times"
                    self._failure = f"{self._url} could not be {what} (tried {times}): {type(error).__name__}: {error}."
                    raise StoreError(self._failure) from error
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause *= 2
            attempt += 1
