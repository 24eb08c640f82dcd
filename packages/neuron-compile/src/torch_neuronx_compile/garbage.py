"""Python's collector of cyclic garbage while a graph is traced."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (100_000, 20, 100)
"""Tracing allocates objects by the hundred thousand and leaves little garbage. At Python's own thresholds a sixth of a
cold start went into looking for it among the objects of all imported modules. With these it is still found."""

_lock = threading.Lock()


class _Process:
    tracing = 0
    """How many graphs are being traced, by all threads."""
    before = gc.get_threshold()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect garbage less often meanwhile, in all threads; a program's own higher or zero thresholds stay."""
    with _lock:
        _Process.tracing += 1
        if _Process.tracing == 1:
            _Process.before = gc.get_threshold()
            if 0 < _Process.before[0] < THRESHOLDS[0]:
                gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        with _lock:
            _Process.tracing -= 1
            if _Process.tracing == 0 and gc.get_threshold() == THRESHOLDS:
                gc.set_threshold(*_Process.before)
