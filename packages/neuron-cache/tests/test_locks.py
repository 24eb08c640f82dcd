from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx_cache import Cache, CacheEvent, CacheKey, Outcome, Settings
from torch_neuronx_cache.errors import LockTimeoutError, StoreError, StoreRefusedError
from torch_neuronx_cache.locks import ABANDONED_AGE, KeyLocks
from torch_neuronx_cache.testing import digest_of

A, B = digest_of(0), digest_of(1)
Fork = Callable[..., Any]


@pytest.fixture
def locks(place: Path) -> KeyLocks:
    return KeyLocks(place / "local", "file:///store", timeout=20)


@pytest.fixture
def hold_elsewhere(fork: Fork, locks: KeyLocks) -> Callable[[str], Any]:
    """Start a process that holds a lock for as long as it lives."""

    def start(digest: str) -> Any:
        ready = os.pipe()

        def hold() -> None:
            with locks.acquire(digest):
                os.write(ready[1], b".")
                time.sleep(60)

        child = fork(hold)
        os.read(ready[0], 1)
        return child

    return start


def test_a_free_lock_is_had_at_once_and_leaves_no_file(locks: KeyLocks, place: Path) -> None:
    with locks.acquire(A) as acquired:
        assert acquired.waited == 0
        holder = locks.holder(A)
        assert holder is not None
        assert holder.pid == os.getpid()
    assert locks.holder(A) is None
    assert [path for path in (place / "local").rglob("*") if path.is_file()] == []


def test_a_wait_past_the_timeout_names_key_holder_and_variable(
    locks: KeyLocks, hold_elsewhere: Callable[[str], Any]
) -> None:
    child = hold_elsewhere(A)
    with pytest.raises(LockTimeoutError) as raised, locks.acquire(A, timeout=0.2):
        pass
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    message = str(raised.value)
    assert A in message
    assert re.search(rf"process {child.pid} on {re.escape(os.uname().nodename)} since \d{{4}}-\d\d-\d\dT", message)
    assert "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT" in message
    assert isinstance(raised.value, TimeoutError)


def test_other_keys_and_other_stores_do_not_wait(
    locks: KeyLocks, place: Path, hold_elsewhere: Callable[[str], Any]
) -> None:
    child = hold_elsewhere(A)
    with locks.acquire(B, timeout=0) as acquired:
        assert acquired.waited == 0
    with KeyLocks(place / "local", "file:///other", timeout=0).acquire(A):
        pass
    os.kill(child.pid, signal.SIGKILL)
    child.wait()


def test_a_killed_holder_frees_the_lock_at_once(locks: KeyLocks, hold_elsewhere: Callable[[str], Any]) -> None:
    child = hold_elsewhere(A)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with locks.acquire(A, timeout=0.5):
        holder = locks.holder(A)
        assert holder is not None
        assert holder.pid == os.getpid()


def test_lock_files_of_killed_holders_are_swept_later(
    locks: KeyLocks, place: Path, hold_elsewhere: Callable[[str], Any]
) -> None:
    killed, alive = hold_elsewhere(A), hold_elsewhere(B)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert locks.sweep() == 0
    long_ago = time.time() - ABANDONED_AGE - 1
    for path in (place / "local").rglob("*.lock"):
        os.utime(path, (long_ago, long_ago))
    assert locks.sweep() == 1
    assert sorted(path.stem for path in (place / "local").rglob("*.lock")) == [B]
    os.kill(alive.pid, signal.SIGKILL)
    alive.wait()


def test_the_lock_is_freed_when_the_work_raises(locks: KeyLocks) -> None:
    with pytest.raises(ZeroDivisionError), locks.acquire(A):
        raise ZeroDivisionError
    with locks.acquire(A, timeout=0):
        pass


def test_a_link_or_a_directory_of_others_is_not_used_for_locks(locks: KeyLocks, place: Path) -> None:
    (place / "elsewhere").mkdir(mode=0o700)
    (place / "local").symlink_to(place / "elsewhere")
    with pytest.raises(StoreRefusedError, match="TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR"), locks.acquire(A):
        pass
    (place / "local").unlink()
    (place / "local").mkdir()
    (place / "local").chmod(0o777)
    with pytest.raises(StoreRefusedError, match="can be written by others"), locks.acquire(A):
        pass
    (place / "local").rmdir()
    (place / "local").write_text("a file")
    with pytest.raises(StoreError, match="cannot hold locks"), locks.acquire(A):
        pass


def test_whoever_waits_reads_what_the_holder_made(settings: Settings, key: CacheKey, fork: Fork) -> None:
    events: list[CacheEvent] = []
    ready = os.pipe()

    def slow() -> bytes:
        os.write(ready[1], b".")
        time.sleep(0.3)
        return b"made by the child"

    child = fork(lambda: Cache.open(settings.neff_url, settings).get_or_create(key, slow))
    os.read(ready[0], 1)
    cache = Cache.open(settings.neff_url, settings, observers=[events.append])
    assert cache.get_or_create(key, lambda: b"made by the parent") == b"made by the child"
    assert child.wait() == 0
    waited, hit = events
    assert (waited.outcome, hit.outcome) == (Outcome.WAITED, Outcome.HIT)
    assert waited.seconds > 0.05


def test_get_or_create_gives_up_after_the_timeout(settings: Settings, key: CacheKey, fork: Fork) -> None:
    ready = os.pipe()

    def hang() -> bytes:
        os.write(ready[1], b".")
        time.sleep(60)
        return b""

    child = fork(lambda: Cache.open(settings.neff_url, settings).get_or_create(key, hang))
    os.read(ready[0], 1)
    impatient = Cache.open(settings.neff_url, replace(settings, lock_timeout=0))
    with pytest.raises(LockTimeoutError, match=f"held by process {child.pid}"):
        impatient.get_or_create(key, lambda: b"")
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert impatient.get_or_create(key, lambda: b"after all") == b"after all"
