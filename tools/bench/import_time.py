"""Time that device autoload adds to ``import torch``: with and without it, by turns, in fresh interpreters.

    python tools/bench/import_time.py [--rounds 11]

Quoted are medians. Within a round both are timed back to back, so that a drift of the machine meets both alike, and the
difference is taken per round. Processor time is quoted beside wall time: it is steadier where other work is running.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_MEASURE = """
import json, time
wall, processor = time.perf_counter(), time.process_time()
import torch
print(json.dumps([time.perf_counter() - wall, time.process_time() - processor]))
"""

BOUND = 0.15
"""Seconds that autoload may add."""


@dataclass(frozen=True)
class Seconds:
    """Seconds of one ``import torch``."""

    wall: float
    processor: float


def measure(autoload: bool) -> Seconds:
    """Time one ``import torch`` in a fresh interpreter."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0"}
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE], env=environment, check=True, capture_output=True, text=True, timeout=300
    )
    return Seconds(*json.loads(done.stdout))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11, help="pairs of interpreters to time (default 11)")
    rounds = parser.parse_args(arguments).rounds
    measure(autoload=True)  # files into the page cache
    pairs = [(measure(autoload=False), measure(autoload=True)) for _ in range(rounds)]
    for name in ("wall", "processor"):
        without, with_ = ([getattr(one, name) for one in side] for side in zip(*pairs, strict=True))
        added = statistics.median(b - a for a, b in zip(without, with_, strict=True))
        medians = [statistics.median(without), statistics.median(with_)]
        print(f"{name:>9}: import torch {medians[0]:.3f} s, with autoload {medians[1]:.3f} s, added {added:+.3f} s")
    print(f"    bound: {BOUND} s added")


if __name__ == "__main__":
    main()
