"""Warnings that are said once in a process, whatever number of entries or stores they touch."""

import warnings

from torch_neuronx_cache.errors import CacheWarning

_said: set[str] = set()


def say_once(topic: str, message: str) -> None:
    """Warn with ``message`` unless something was already said about ``topic``."""
    if topic not in _said:
        _said.add(topic)
        warnings.warn(message, CacheWarning, stacklevel=3)


def forget() -> None:
    """Let everything be said again; for tests."""
    _said.clear()
