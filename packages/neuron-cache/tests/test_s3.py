"""A store on a real server of the S3 protocol: moto's, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from torch_neuronx_cache import Cache, CacheKey, CacheWarning, Settings, Store, open_store
from torch_neuronx_cache.stores import patience
from torch_neuronx_cache.stores.fsspec_store import FsspecStore
from torch_neuronx_cache.testing import StoreConformance

HOW = "needs a real S3 server and client: pip install 's3fs>=2024.6' 'moto[server]>=5'"
pytest.importorskip("s3fs", reason=HOW)
pytest.importorskip("moto.server", reason=HOW)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore", "ignore::DeprecationWarning:aiobotocore")


class Server:
    """moto's server in a process of its own."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/moto-api/", timeout=1).close()
                return
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.stop()


@pytest.fixture
def bucket(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket, with credentials in the environment as a job would have them."""
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"bucket-{os.urandom(6).hex()}"
    s3fs.S3FileSystem().mkdir(name)
    return f"s3://{name}/neff"


class TestS3(StoreConformance):
    @pytest.fixture
    def open_store(self, bucket: str) -> Callable[[], Store]:
        return lambda: open_store(bucket)


def test_what_a_build_machine_stored_warms_a_worker(
    bucket: str, settings: Settings, place: Path, key: CacheKey
) -> None:
    builder = Cache.open(bucket, replace(settings, local_directory=str(place / "builder")))
    assert builder.get_or_create(key, lambda: b"neff", {"graph": "g"}) == b"neff"
    worker = Cache.open(bucket, settings)
    assert worker.get_or_create(key, lambda: b"never") == b"neff"
    remote = Cache.open(bucket, settings, read_through=False)
    assert [header.labels["graph"] for _, header in remote.headers()] == ["g"]


def test_other_processes_find_it(bucket: str, key: CacheKey) -> None:
    store = FsspecStore(bucket)
    store.write(key.digest, b"x")
    program = (
        "import sys; from torch_neuronx_cache import open_store\n"
        "assert open_store(sys.argv[1]).read(sys.argv[2]) == b'x'\n"
    )
    ranks = [subprocess.Popen([sys.executable, "-c", program, bucket, key.digest]) for _ in range(3)]
    assert [rank.wait() for rank in ranks] == [0, 0, 0]


def test_when_the_server_goes_the_work_goes_on(
    settings: Settings, key_of: Callable[..., CacheKey], monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    import s3fs

    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    own = Server()
    monkeypatch.setenv("AWS_ENDPOINT_URL", own.url)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir(bucket.split("/")[2])
    cache = Cache.open(bucket, replace(settings, memory_bytes=0))
    assert cache.get_or_create(key_of(1), lambda: b"one") == b"one"
    own.stop()
    with pytest.warns(CacheWarning, match=r"could not be read \(tried 3 times\)"):
        assert cache.get_or_create(key_of(2), lambda: b"two") == b"two"
    assert cache.get(key_of(1)) == b"one"
    assert cache.get(key_of(2)) == b"two"
