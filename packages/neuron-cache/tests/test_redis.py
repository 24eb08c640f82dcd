"""A store on a real Redis or Valkey server, on loopback."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx_cache import Cache, CacheKey, CacheWarning, Settings, Store, open_store
from torch_neuronx_cache.stores import patience
from torch_neuronx_cache.testing import StoreConformance, digest_of

redis = pytest.importorskip("redis", reason="needs the client: pip install 'redis>=5'")
PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs a server: apt-get install redis-server")


class Server:
    def __init__(self, place: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        assert PROGRAM is not None
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(place)]
        self.process = subprocess.Popen([PROGRAM, "--port", str(self.port), *options], stdout=subprocess.DEVNULL)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        until = time.monotonic() + 20
        while True:
            try:
                with redis.Redis.from_url(self.url) as client:
                    client.ping()
                return
            except redis.ConnectionError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.02)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("redis"))
    yield started
    started.stop()


@pytest.fixture
def url(server: Server) -> str:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    return f"{server.url}?prefix=a[*]:"


class TestRedis(StoreConformance):
    @pytest.fixture
    def open_store(self, url: str) -> Iterator[Callable[[], Store]]:
        opened: list[Store] = []

        def open_one() -> Store:
            opened.append(open_store(url))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()


def test_prefixes_are_apart(server: Server, url: str) -> None:
    one, other = open_store(url), open_store(f"{server.url}?prefix=aX:")
    one.write(digest_of(0), b"x")
    assert other.read(digest_of(0)) is None
    assert list(other.scan()) == []
    one.close()
    other.close()


def test_a_fleet_shares_what_one_rank_made(url: str, settings: Settings, place: Path, key: CacheKey, fork: Any) -> None:
    def rank(number: int) -> Callable[[], None]:
        def work() -> None:
            own = replace(settings, local_directory=str(place / f"host-{number}"))
            cache = Cache.open(url, own)
            assert cache.get_or_create(key, lambda: b"never" if number else b"neff") == b"neff"
            cache.close()

        return work

    assert fork(rank(0)).wait() == 0
    assert [child.wait() for child in [fork(rank(number)) for number in (1, 2, 3)]] == [0, 0, 0]
    cache = Cache.open(url, settings, read_through=False)
    assert cache.get(key) == b"neff"
    assert cache.stats().hits == 1
    cache.close()


def test_when_the_server_goes_the_work_goes_on(
    settings: Settings, key_of: Callable[..., CacheKey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    own = Server(tmp_path)
    cache = Cache.open(own.url, replace(settings, memory_bytes=0))
    assert cache.get_or_create(key_of(1), lambda: b"one") == b"one"
    own.stop()
    with pytest.warns(CacheWarning, match=r"could not be read \(tried 3 times\)"):
        assert cache.get_or_create(key_of(2), lambda: b"two") == b"two"
    assert cache.get(key_of(1)) == b"one"
    assert cache.get(key_of(2)) == b"two"
    cache.close()
