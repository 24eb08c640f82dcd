"""Many processes at once: one make for each key, equal bytes, no deadlock, whoever is killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock  # noqa: F401  (imported once here, not by each forked process)
import pytest
from blake3 import blake3

from torch_neuronx_cache import Cache, CacheKey, Settings, Verdict
from torch_neuronx_cache.stores.file import FileStore

PROCESSES = 16
Fork = Callable[..., Any]
KeyOf = Callable[..., CacheKey]


def content_of(key: CacheKey) -> bytes:
    return blake3(key.digest.encode()).digest(length=20_000)


def settings_in(place: Path) -> Settings:
    return Settings(str(place / "neff"), str(place / "hlo"), str(place / "local"), lock_timeout=60, memory_bytes=0)


def run_rank(place: Path, keys: list[CacheKey], seed: int, start: int) -> None:
    """Want every key, in an order of its own; note each make."""
    cache = Cache.open(str(place / "neff"), settings_in(place))
    order = random.Random(seed).sample(keys, len(keys))

    def make(key: CacheKey) -> bytes:
        note = os.open(place / f"made-{key.digest}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(note, b".")
        os.close(note)
        time.sleep(0.002)
        return content_of(key)

    os.read(start, 1)
    for key in order:
        assert cache.get_or_create(key, lambda key=key: make(key)) == content_of(key)  # type: ignore[misc]
    cache.close()


def race(place: Path, fork: Fork, keys: list[CacheKey], killed: int = 0) -> list[int]:
    """Return how often each key was made."""
    read, write = os.pipe()

    def rank(seed: int) -> None:
        os.close(write)
        run_rank(place, keys, seed, read)

    children = [fork(lambda seed=seed: rank(seed)) for seed in range(PROCESSES)]
    os.close(read)
    os.close(write)  # end of file is the start signal
    for child in random.sample(children, killed):
        time.sleep(random.uniform(0, 0.05))
        os.kill(child.pid, signal.SIGKILL)
    results = [child.wait() for child in children]
    assert results.count(0) >= PROCESSES - killed
    assert set(results) <= {0, -signal.SIGKILL}
    return [(place / f"made-{key.digest}").stat().st_size for key in keys]


@pytest.mark.parametrize(("count", "rounds"), [(1, 6), (10, 3), (100, 1)])
def test_each_key_is_made_once(disk_place: Path, fork: Fork, key_of: KeyOf, count: int, rounds: int) -> None:
    for number in range(rounds):
        place = disk_place / str(number)
        place.mkdir(mode=0o700)
        assert race(place, fork, [key_of(n) for n in range(count)]) == [1] * count
        assert list((place / "local").rglob("*.lock")) == []


@pytest.mark.parametrize(("count", "rounds"), [(1, 4), (10, 3), (100, 1)])
def test_with_three_killed_each_key_is_made_by_a_survivor(
    disk_place: Path, fork: Fork, key_of: KeyOf, count: int, rounds: int
) -> None:
    for number in range(rounds):
        place = disk_place / str(number)
        place.mkdir(mode=0o700)
        keys = [key_of(n) for n in range(count)]
        made = race(place, fork, keys, killed=3)
        # One that was killed while it made a key did so in vain: at most three makes are lost.
        assert sum(made) <= count + 3
        cache = Cache.open(str(place / "neff"), settings_in(place))
        assert {checked.verdict for checked in cache.verify()} == {Verdict.GOOD}
        assert [cache.get(key) for key in keys] == [content_of(key) for key in keys]


def test_eviction_beside_readers_and_writers_never_takes_what_they_hold(
    disk_place: Path, fork: Fork, key_of: KeyOf
) -> None:
    keys = [key_of(n) for n in range(30)]
    settings = settings_in(disk_place)

    def work(seed: int) -> None:
        cache = Cache.open(settings.neff_url, settings)
        choice = random.Random(seed)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            key = choice.choice(keys)
            assert cache.get_or_create(key, lambda key=key: content_of(key)) == content_of(key)  # type: ignore[misc]
            assert cache.get(key) == content_of(key), "it was evicted while this process held it"
            if choice.random() < 0.7:
                cache.release(key)

    def prune(seed: int) -> None:
        cache = Cache.open(settings.neff_url, settings)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert isinstance(cache.store, FileStore)
            cache.store.evict([key.digest for key in random.Random(seed).sample(keys, 10)])

    children = [fork(lambda seed=seed: work(seed)) for seed in range(4)] + [fork(lambda: prune(9)) for _ in range(2)]
    assert [child.wait() for child in children] == [0] * 6
    cache = Cache.open(settings.neff_url, settings)
    assert {checked.verdict for checked in cache.verify()} <= {Verdict.GOOD}
    assert list((disk_place / "neff" / "tmp").iterdir()) == []
