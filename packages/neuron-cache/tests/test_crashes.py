"""``kill -9`` of a writing process: complete entries are good, nothing wrong is ever returned."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_neuronx_cache import Cache, CacheKey, Settings, Verdict

ROUNDS = 25


def content_of(number: int) -> bytes:
    return random.Random(number).randbytes(1_000 + number * 7_919 % 300_000)


def test_a_writer_may_be_killed_at_any_point(
    disk_place: Path, fork: Callable[..., Any], key_of: Callable[..., CacheKey]
) -> None:
    settings = Settings(str(disk_place / "neff"), "", str(disk_place / "local"), memory_bytes=0)
    numbers = range(40)
    contents = {number: content_of(number) for number in numbers}
    keys = {number: key_of(number) for number in numbers}

    ready = os.pipe()

    def write_forever() -> None:
        cache = Cache.open(settings.neff_url, settings)
        choice = random.Random(os.getpid())
        os.write(ready[1], b".")
        while True:
            number = choice.choice(numbers)
            cache.put(keys[number], contents[number])

    for _ in range(ROUNDS):
        child = fork(write_forever)
        os.read(ready[0], 1)
        time.sleep(random.uniform(0.001, 0.03))
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        cache = Cache.open(settings.neff_url, settings)
        assert all(checked.verdict is Verdict.GOOD for checked in cache.verify())
        assert all(cache.get(keys[number]) in (None, contents[number]) for number in numbers)
        cache.close()
    last = Cache.open(settings.neff_url, settings)
    last.put(key_of(99), b"the sweep comes with the first write")
    assert list((disk_place / "neff" / "tmp").iterdir()) == []
    assert last.stats().entries > 1
