"""How long a warm hit of the cache takes, beside ``diskcache`` in the same run.

    python tools/bench/cache.py [--entries 100000] [--json FILE]

Measures a get of a 200 kB content: from the page cache (the memory layer switched off), from the memory layer, and with
``diskcache.Cache`` under the same keys; for a store of 100 entries and for a large one; and from several processes at
once. Lookups go round 100 keys in random order. Each figure is the median of rounds that alternate between the
candidates, so that a slow moment of the machine meets all of them. Needs ``pip install diskcache``.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import diskcache

from torch_neuronx_cache import Cache, CacheKey, Settings, neff_key
from torch_neuronx_cache.entries import encode
from torch_neuronx_cache.stores.file import FileStore

SIZE = 200_000
ASKED = 100
ROUNDS = 25


def key_of(number: int) -> CacheKey:
    """Return one of a sequence of keys."""
    config = {"opt_level": 1, "auto_cast": "none"}
    return neff_key(stablehlo=b"module @m%d {}" % number, compiler_config=config, compiler="bench 1", target="trn2")


def content_of(number: int) -> bytes:
    """Return the content of that number."""
    return random.Random(number).randbytes(SIZE)


def fill(place: Path, entries: int) -> tuple[Path, Path]:
    """Make both stores with that many entries; only those that are asked for have the full size."""
    ours, theirs = place / f"ours-{entries}", place / f"diskcache-{entries}"
    store = FileStore(ours, durable=False)
    other = diskcache.Cache(str(theirs), size_limit=2**40, eviction_policy="none")
    with other.transact():
        for number in range(entries):
            key = key_of(number)
            content = content_of(number) if number < ASKED else b"x" * 64
            store.write(key.digest, encode(key, content, {"graph": f"graph_{number}"}))
            other.set(key.digest, content)
    other.close()
    return ours, theirs


def microseconds(get: Callable[[CacheKey], object], keys: list[CacheKey]) -> float:
    """Return the time of one get, over one pass through the keys."""
    order = random.sample(keys, len(keys))
    start = time.perf_counter()
    for key in order:
        get(key)
    return (time.perf_counter() - start) / len(order) * 1e6


def by_digest(store: diskcache.Cache, key: CacheKey) -> object:
    """Get from a store whose keys are strings."""
    return store.get(key.digest)


def measure(place: Path, sizes: list[int]) -> dict[str, float]:
    """Return the medians by candidate."""
    keys = [key_of(number) for number in range(ASKED)]
    settings = Settings("", "", str(place / "local"), memory_bytes=0)
    candidates: dict[str, Callable[[CacheKey], object]] = {}
    for entries in sizes:
        ours, theirs = fill(place, entries)
        on_disk = Cache.open(str(ours), settings)
        in_memory = Cache.open(str(ours), replace(settings, memory_bytes=2**30))
        other = diskcache.Cache(str(theirs))
        candidates[f"page cache, {entries:,} entries"] = on_disk.get
        candidates[f"memory layer, {entries:,} entries"] = in_memory.get
        candidates[f"diskcache, {entries:,} entries"] = partial(by_digest, other)
    for name, get in candidates.items():
        for number, key in enumerate(keys):
            assert get(key) == content_of(number), name
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, get in candidates.items():
            found[name].append(microseconds(get, keys))
    return {name: statistics.median(times) for name, times in found.items()}


def hits_per_second(place: Path, entries: int, processes: int, seconds: float = 2.0) -> float:
    """Return how many warm hits several processes get together from the page cache."""
    settings = Settings("", "", str(place / "local"), memory_bytes=0)
    keys = [key_of(number) for number in range(ASKED)]
    read, write = os.pipe()
    children = []
    for seed in range(processes):
        pid = os.fork()
        if pid == 0:
            cache = Cache.open(str(place / f"ours-{entries}"), settings)
            choice = random.Random(seed)
            until, count = time.monotonic() + seconds, 0
            while time.monotonic() < until:
                for key in choice.sample(keys, 20):
                    cache.get(key)
                count += 20
            os.write(write, count.to_bytes(8, "little"))
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    total = sum(int.from_bytes(os.read(read, 8), "little") for _ in children)
    return total / seconds


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100_000, help="entries of the large store")
    parser.add_argument("--place", help="directory for the stores (default: a temporary one)")
    parser.add_argument("--json", help="write the figures to a file")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="bench-cache-", dir=options.place))
    try:
        sizes = [100, options.entries]
        times = measure(place, sizes)
        rates = {n: hits_per_second(place, 100, n) for n in (1, 2, 4)}
    finally:
        shutil.rmtree(place)
    print(f"Warm get of {SIZE:,} bytes, median of {ROUNDS} rounds, {os.cpu_count()} cores\n")
    print(f"| get from | 100 entries | {options.entries:,} entries |")
    print("|---|---:|---:|")
    for name in ("memory layer", "page cache", "diskcache"):
        small, large = (times[f"{name}, {entries:,} entries"] for entries in sizes)
        print(f"| {name} | {small:.1f} us | {large:.1f} us |")
    print("\n| processes at once | hits per second from the page cache |\n|---:|---:|")
    for processes, rate in rates.items():
        print(f"| {processes} | {rate:,.0f} |")
    if options.json:
        report = {"microseconds": times, "hits_per_second": rates}
        Path(options.json).write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
