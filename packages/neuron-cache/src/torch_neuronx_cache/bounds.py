"""Bounds of a store, and which entries have to go to keep them: pure arithmetic over what the store lists."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch_neuronx_cache.errors import CacheConfigurationError
from torch_neuronx_cache.stores.interface import StoredBlob

SLACK = 0.9
"""A store that is over its size is pruned to this share of it, so that not every new entry has to prune."""

_SIZES = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_AGES = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a store may hold; None for no bound."""

    max_bytes: int | None = None
    max_age: float | None = None
    """Seconds since the last use."""


def victims(blobs: Iterable[StoredBlob], limits: Limits, now: float, *, slack: float = 1.0) -> list[StoredBlob]:
    """Return what to remove, longest unused first: all that is too old, then until the size is kept."""
    by_use = sorted(blobs, key=lambda blob: (blob.used, blob.digest))
    total = sum(blob.size for blob in by_use)
    over = limits.max_bytes is not None and total > limits.max_bytes
    target = limits.max_bytes * slack if over and limits.max_bytes is not None else None
    chosen = []
    for blob in by_use:
        too_old = limits.max_age is not None and now - blob.used > limits.max_age
        too_much = target is not None and total > target
        if not (too_old or too_much):
            break  # those that follow were used later, and the total does not grow
        chosen.append(blob)
        total -= blob.size
    return chosen


def parse_size(text: str) -> int:
    """Read ``500``, ``64MiB``, ``10G``: bytes, powers of 1024. Raises :class:`CacheConfigurationError`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if not match:
        raise CacheConfigurationError(f"{text!r} is not a size. Write a number with k, M, G or T, such as 10G.")
    return int(float(match[1]) * _SIZES[match[2]])


def parse_age(text: str) -> float:
    """Read ``90``, ``15m``, ``36h``, ``7d``, ``2w``: seconds. Raises :class:`CacheConfigurationError`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text.strip().lower())
    if not match:
        raise CacheConfigurationError(f"{text!r} is not an age. Write a number with s, m, h, d or w, such as 7d.")
    return float(match[1]) * _AGES[match[2]]
