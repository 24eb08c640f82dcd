"""Kill a process that writes to a cache, at random points, round after round, and look at what is left.

    python tools/cache/kill_writers.py [--rounds 500] [--place DIRECTORY] [--seed N]

After each round every entry that is there must be good, and every content that is returned must be the right one.
Ends with status 1 at the first that is not.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from torch_neuronx_cache import Cache, CacheKey, Settings, Verdict

NUMBERS = range(60)


def key_of(number: int) -> CacheKey:
    """Return one of a sequence of keys."""
    return CacheKey.of("neff", {"stablehlo": b"module @m%d {}" % number, "target": "trn2"})


def content_of(number: int) -> bytes:
    """Return the content of that number, of up to 400 kB."""
    return random.Random(number).randbytes(500 + number * 7_919 % 400_000)


def write_forever(settings: Settings, contents: dict[int, bytes], seed: int, ready: int) -> None:
    """Put, make and prune in random order until killed."""
    cache = Cache.open(settings.neff_url, settings)
    choice = random.Random(seed)
    os.write(ready, b".")
    while True:
        number = choice.choice(NUMBERS)
        action = choice.random()
        if action < 0.6:
            cache.put(key_of(number), contents[number])
        elif action < 0.9:
            cache.get_or_create(key_of(number), partial(contents.__getitem__, number))
        else:
            cache.release(key_of(number))
            if cache.store:
                cache.store.evict([key_of(number).digest])


def main() -> None:
    """Run the rounds and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--place", help="directory for the store (default: a temporary one)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="kill-writers-", dir=options.place))
    settings = Settings(str(place / "neff"), "", str(place / "local"), lock_timeout=20, memory_bytes=0)
    contents = {number: content_of(number) for number in NUMBERS}
    choice = random.Random(options.seed)
    checked = served = mid_write = 0
    read, write = os.pipe()
    try:
        for number in range(options.rounds):
            seed = choice.randrange(2**32)
            pid = os.fork()
            if pid == 0:
                write_forever(settings, contents, seed, write)
            os.read(read, 1)
            time.sleep(choice.uniform(0, 0.03))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            mid_write += any((place / "neff" / "tmp").glob("*"))
            cache = Cache.open(settings.neff_url, settings)
            for entry in cache.verify():
                checked += 1
                if entry.verdict is not Verdict.GOOD:
                    sys.exit(f"round {number}, seed {options.seed}: {entry}")
            for wanted in NUMBERS:
                content = cache.get(key_of(wanted))
                served += content is not None
                if content not in (None, contents[wanted]):
                    sys.exit(f"round {number}, seed {options.seed}: wrong bytes for {key_of(wanted)}")
            cache.close()
        cache = Cache.open(settings.neff_url, settings)
        cache.put(key_of(NUMBERS[-1]), contents[NUMBERS[-1]])
        left = [path.name for path in (place / "neff" / "tmp").iterdir()]
        if left:
            sys.exit(f"left behind: {left}")
    finally:
        shutil.rmtree(place)
    print(
        f"{options.rounds} writers killed, {mid_write} of them in the middle of a write (seed {options.seed}): "
        f"{checked:,} entries checked and all good, {served:,} hits and all right, no leftovers."
    )


if __name__ == "__main__":
    main()
