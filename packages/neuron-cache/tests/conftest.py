from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx_cache import Cache, CacheEvent, CacheKey, Settings, neff_key, notices


@pytest.fixture(autouse=True)
def _clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of the caller's, and nothing said yet."""
    for name in list(os.environ):
        if name.startswith("TORCH_NEURONX_"):
            monkeypatch.delenv(name)
    notices.forget()
    yield
    notices.forget()


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory of this user's, which other users can enter; in memory where that is possible."""
    yield from _directory("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


@pytest.fixture
def disk_place() -> Iterator[Path]:
    """The same on a disk."""
    yield from _directory(None)


def _directory(parent: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cache-test-", dir=parent) as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def settings(place: Path) -> Settings:
    return Settings(str(place / "neff"), str(place / "hlo"), str(place / "local"), lock_timeout=30)


@pytest.fixture
def events() -> list[CacheEvent]:
    return []


@pytest.fixture
def cache(settings: Settings, events: list[CacheEvent]) -> Cache:
    return Cache.open(settings.neff_url, settings, observers=[events.append])


def make_key(number: int = 0, **changes: Any) -> CacheKey:
    parts: dict[str, Any] = {
        "stablehlo": b"module @m%d {}" % number,
        "compiler_config": {"opt_level": 1, "auto_cast": "none"},
        "compiler": "emulator 0.1",
        "target": "trn2",
    }
    return neff_key(**(parts | changes))


@pytest.fixture
def key() -> CacheKey:
    return make_key()


@pytest.fixture
def key_of() -> Callable[..., CacheKey]:
    return make_key


class Child:
    """A forked process that runs one function; what it raises is a status that is not 0."""

    def __init__(self, function: Callable[[], object]) -> None:
        with warnings.catch_warnings():  # Python 3.12 warns of forks beside threads, which a client library may have
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                function()
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc(file=sys.__stderr__)
            finally:
                os._exit(status)

    def wait(self) -> int:
        """The exit status, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def fork() -> Callable[[Callable[[], object]], Child]:
    return Child
