"""Time of small eager calls on device neuron against the same calls on the CPU, in one run.

    python tools/bench/eager_overhead.py [--markdown] [--rounds 15]

Both devices take turns within each round, so that a drift of the machine meets both alike; quoted is the median over
rounds and the ratio of medians. Small tensors: what is measured is the path to the kernel, not the kernel.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """Microseconds per call."""

    name: str
    cpu: float
    neuron: float

    @property
    def ratio(self) -> float:
        """Neuron's time over the CPU's."""
        return self.neuron / self.cpu


def calls(device: str) -> dict[str, Call]:
    """Thirty common calls on 8x8 float32 tensors; the first four carry a bound of their own."""
    torch.manual_seed(0)
    x, y = torch.randn(8, 8).to(device), torch.randn(8, 8).to(device)
    image, kernel = torch.randn(1, 3, 8, 8).to(device), torch.randn(4, 3, 3, 3).to(device)
    positive, mask = x.abs() + 1, x > 0
    index, table = torch.arange(8).to(device), torch.randn(16, 8).to(device)
    weight, bias, target = torch.ones(8).to(device), torch.zeros(8).to(device), torch.arange(8).to(device)
    return {
        "x + x": lambda: x + x,
        "x @ x": lambda: x @ x,
        "layer_norm": lambda: F.layer_norm(x, (8,), weight, bias),
        "x.view": lambda: x.view(64),
        "x + 1": lambda: x + 1,
        "x * y": lambda: x * y,
        "x - y": lambda: x - y,
        "x / y": lambda: x / y,
        "x.add_": lambda: x.add_(0.0),
        "x > y": lambda: x > y,
        "exp": lambda: x.exp(),
        "sqrt": lambda: positive.sqrt(),
        "tanh": lambda: x.tanh(),
        "sigmoid": lambda: x.sigmoid(),
        "relu": lambda: F.relu(x),
        "gelu": lambda: F.gelu(x),
        "silu": lambda: F.silu(x),
        "softmax": lambda: F.softmax(x, dim=-1),
        "sum": lambda: x.sum(),
        "mean(dim)": lambda: x.mean(dim=-1),
        "amax": lambda: x.amax(dim=-1),
        "linear": lambda: F.linear(x, y, bias),
        "bmm": lambda: torch.bmm(x.unsqueeze(0), y.unsqueeze(0)),
        "conv2d": lambda: F.conv2d(image, kernel),
        "cat": lambda: torch.cat((x, y)),
        "where": lambda: torch.where(mask, x, y),
        "embedding": lambda: F.embedding(index, table),
        "cross_entropy": lambda: F.cross_entropy(x, target),
        "transpose": lambda: x.t(),
        "clone": lambda: x.clone(),
    }


def microseconds(call: Call, repeats: int) -> float:
    """Time one call, as the mean over ``repeats``."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats * 1e6


def measure(rounds: int, repeats: int) -> list[Row]:
    """Time every call on both devices in turns."""
    on_cpu, on_neuron = calls("cpu"), calls("neuron")
    rows = []
    for name, cpu_call in on_cpu.items():
        neuron_call = on_neuron[name]
        microseconds(cpu_call, repeats // 4), microseconds(neuron_call, repeats // 4)
        times = [(microseconds(cpu_call, repeats), microseconds(neuron_call, repeats)) for _ in range(rounds)]
        rows.append(Row(name, statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        rows = measure(options.rounds, options.repeats)
    mean = statistics.geometric_mean(row.ratio for row in rows)
    line = "| {:13} | {:>8} | {:>8} | {:>5} |" if options.markdown else "{:13} {:>8} {:>8} {:>5}"
    print(line.format("call", "CPU us", "neuron us", "ratio"))
    if options.markdown:
        print("|---|---|---|---|")
    for row in rows:
        print(line.format(row.name, f"{row.cpu:.2f}", f"{row.neuron:.2f}", f"{row.ratio:.2f}"))
    print(line.format("geometric mean", "", "", f"{mean:.2f}"))


if __name__ == "__main__":
    main()
