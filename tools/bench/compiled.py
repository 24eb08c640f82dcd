"""torch.compile with the backend `neuron` against Inductor on the CPU, in one run.

    python tools/bench/compiled.py                      # everything
    python tools/bench/compiled.py call run             # some sections: call, run, train, attention, depth, memory,
                                                        # cold, flat
    python tools/bench/compiled.py flat --calls 5000 --recompiles 200

`call` is the cost of a call, on three operations of 8x8. `run` is how long models take, `train` their forward and
backward passes, `attention` attention alone: each candidate in processes of its own, for threads that one has started
slow the other down, and these take turns, so that a drift of the machine meets both alike; quoted are medians over
processes of medians over rounds of calls, and ratios of medians. `depth` is what a layer takes at 48 layers and at 4.
`memory` is the device memory of a training step, with XLA's temporary memory, against eager mode. `cold` starts new
processes: without any cache, and with those of the first. `flat` calls and recompiles and looks at what stays
allocated. Processor time stands in for wall time with `--cpu-time`, on a machine that does other things.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F

Run = Callable[[], object]


class Section(StrEnum):
    """What can be measured."""

    CALL = "call"
    RUN = "run"
    TRAIN = "train"
    ATTENTION = "attention"
    DEPTH = "depth"
    MEMORY = "memory"
    COLD = "cold"
    FLAT = "flat"


class Candidate(StrEnum):
    """What compiles."""

    INDUCTOR = "inductor"
    NEURON = "neuron"

    @property
    def device(self) -> str:
        """Where its tensors are."""
        return "neuron" if self is Candidate.NEURON else "cpu"


Times = dict[str, float]
"""What one candidate takes, by the name of the row."""


@dataclass(frozen=True)
class Row:
    """One quantity of both candidates."""

    name: str
    other: float
    neuron: float
    unit: str

    @property
    def ratio(self) -> float:
        """Neuron's over the other's."""
        return self.neuron / self.other


class Block(nn.Module):
    """A transformer layer, normalized first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attend causally, then apply the two linear layers."""
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        result: Tensor = x + self.down(F.gelu(self.up(self.second(x))))
        return result


class Residual(nn.Module):
    """A layer of ResNet-18."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride != 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Add two convolutions to the input."""
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(inner)) + self.short(x))


def transformer(layers: int) -> nn.Module:
    """D=256, 8 heads, for T=128 and B=4."""
    return nn.Sequential(*[Block(256, 8) for _ in range(layers)], nn.LayerNorm(256))


def convnet() -> nn.Module:
    """ResNet-18 without its last stage, for 64x64 images."""
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    layers = [Residual(*width) for width in widths]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)).eval()


def mlp() -> nn.Module:
    """Three layers of 1024."""
    return nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10))


TOKENS, IMAGES, ROWS = (4, 128, 256), (4, 3, 64, 64), (256, 1024)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], torch.dtype]] = {
    "transformer, 4 layers, float32": (lambda: transformer(4), TOKENS, torch.float32),
    "transformer, 4 layers, bfloat16": (lambda: transformer(4), TOKENS, torch.bfloat16),
    "convnet, float32": (convnet, IMAGES, torch.float32),
    "convnet, bfloat16": (convnet, IMAGES, torch.bfloat16),
    "MLP, float32": (mlp, ROWS, torch.float32),
    "MLP, bfloat16": (mlp, ROWS, torch.bfloat16),
}


@dataclass(frozen=True)
class Bench:
    """How to measure."""

    rounds: int
    cpu_time: bool
    processes: int = 1

    def seconds(self, run: Run, repeats: int) -> float:
        """Return the time of one call, as a mean."""
        clock = time.process_time if self.cpu_time else time.perf_counter
        start = clock()
        for _ in range(repeats):
            run()
        return (clock() - start) / repeats

    def median(self, run: Run, repeats: int) -> float:
        """Return the median over rounds of the time of one call."""
        for _ in range(3):
            run()
        return statistics.median(self.seconds(run, repeats) for _ in range(self.rounds))


def three(x: Tensor, y: Tensor) -> Tensor:
    """Compute with three operations."""
    return (x * y + 1).relu()


def scaled(x: Tensor, y: Tensor, by: int) -> Tensor:
    """Compute another function for each number."""
    return three(x, y) * by


def call(bench: Bench, candidate: Candidate) -> Times:
    """Measure what a call costs, in microseconds."""
    x, y = (torch.randn(8, 8).to(candidate.device) for _ in range(2))
    compiled = torch.compile(three, backend=candidate)
    return {"call of three operations": bench.median(lambda: compiled(x, y), 1000) * 1e6}


def prepared(
    make: Callable[[], nn.Module], shape: tuple[int, ...], dtype: torch.dtype, candidate: Candidate, *, train: bool
) -> Run:
    """Compile a model; its results must be eager mode's on the CPU."""
    torch._dynamo.reset()  # or it stops at the eighth model of a class
    torch.manual_seed(0)
    model, x = make().to(dtype), torch.randn(shape).to(dtype)
    with torch.set_grad_enabled(train):
        expected = model(x).float()
        model, x = model.to(candidate.device), x.to(candidate.device)
        compiled = torch.compile(model, backend=candidate)
        torch.testing.assert_close(
            compiled(x).float().cpu(), expected, rtol=5e-2, atol=0.1 if dtype.itemsize == 2 else 1e-4
        )
    return (lambda: _differentiate(compiled, model, x)) if train else (lambda: compiled(x))


def _differentiate(forward: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> None:
    with torch.enable_grad():
        torch.autograd.backward(forward(x).square().mean())
    model.zero_grad()


def run(bench: Bench, candidate: Candidate) -> Times:
    """Measure models, in milliseconds."""
    return {name: bench.median(prepared(*model, candidate, train=False), 5) * 1e3 for name, model in MODELS.items()}


def train(bench: Bench, candidate: Candidate) -> Times:
    """Measure models and their gradients, in milliseconds."""
    return {
        f"{name}, with gradients": bench.median(prepared(*model, candidate, train=True), 5) * 1e3
        for name, model in MODELS.items()
    }


class Heads(nn.Module):
    """Attention between projections that cost nothing: its operands are parts of one tensor."""

    def __init__(self, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, packed: Tensor) -> Tensor:
        """Attend, and lay the heads side by side."""
        q, k, v = (part.view(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in packed.chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)


def attention(bench: Bench, candidate: Candidate) -> Times:
    """Measure attention of 4 heads of 128 queries and keys of 32, 16 times, and of 8 heads of 512 of 64, twice.

    In milliseconds.
    """
    times = {}
    for batch, heads, length, size in ((16, 4, 128, 32), (2, 8, 512, 64)):
        for dtype in (torch.float32, torch.bfloat16):
            for causal in (False, True):
                make = partial(Heads, heads, causal=causal)
                found = prepared(make, (batch, length, 3 * heads * size), dtype, candidate, train=False)
                name = f"{'causal' if causal else 'full'}, {batch} x {heads} x {length} x {size}, {str(dtype)[6:]}"
                times[name] = bench.median(found, 5) * 1e3
    return times


APART: dict[Section, tuple[Callable[[Bench, Candidate], Times], str]] = {
    Section.CALL: (call, "us"),
    Section.RUN: (run, "ms"),
    Section.TRAIN: (train, "ms"),
    Section.ATTENTION: (attention, "ms"),
}
"""Sections whose candidates have processes of their own, and the unit of their times."""


def apart(bench: Bench, section: Section) -> list[Row]:
    """Measure both candidates, each in new processes, in turns."""
    found: dict[Candidate, list[Times]] = {candidate: [] for candidate in Candidate}
    for turn in range(bench.processes):
        for candidate in list(Candidate)[:: 1 if turn % 2 == 0 else -1]:
            command = [sys.executable, __file__, section, "--candidate", candidate, "--rounds", str(bench.rounds)]
            command += ["--threads", str(torch.get_num_threads()), *(["--cpu-time"] if bench.cpu_time else [])]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[candidate].append(json.loads(ended.stdout.splitlines()[-1]))
    unit = APART[section][1]
    rows = []
    for name in found[Candidate.NEURON][0]:
        other, neuron = (statistics.median(times[name] for times in found[candidate]) for candidate in Candidate)
        rows.append(Row(name, other, neuron, unit))
    if section in (Section.RUN, Section.TRAIN):
        mean = statistics.geometric_mean([row.ratio for row in rows])
        rows.append(Row("geometric mean of the ratios", 1.0, mean, ""))
    return rows


def depth(bench: Bench) -> list[Row]:
    """Measure a layer's share at 48 layers against its share at 4."""
    shares = []
    for layers in (4, 48):
        torch.manual_seed(0)
        model, x = transformer(layers).to("neuron"), torch.randn(TOKENS).to("neuron")
        compiled = torch.compile(model, backend="neuron")
        compiled(x)
        shares.append(statistics.median(bench.seconds(partial(compiled, x), 3) for _ in range(bench.rounds)) / layers)
    return [Row("a layer of 48 against one of 4", shares[0] * 1e3, shares[1] * 1e3, "ms")]


def memory(bench: Bench) -> list[Row]:
    """Measure the peak of a training step."""
    from torch_neuronx_compile.compilers.emulator.executable import XlaExecutable

    peaks = []
    for backend in (None, "neuron"):
        torch.manual_seed(0)
        model, x = transformer(4).to("neuron"), torch.randn(8, 128, 256).to("neuron")
        optimizer = torch.optim.AdamW(model.parameters())
        forward = model if backend is None else torch.compile(model, backend=backend)
        with torch.enable_grad():
            for _ in range(min(3, bench.rounds)):
                torch.accelerator.reset_peak_memory_stats()
                forward(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        peak = torch.accelerator.max_memory_allocated()
        if backend is not None:  # XLA's own memory lies beside the pools
            peak += max(found.temporary_bytes for found in gc.get_objects() if type(found) is XlaExecutable)
        peaks.append(peak / 2**20)
        del model, optimizer, forward, x
        gc.collect()
    return [Row("training step, eager against compiled", peaks[0], peaks[1], "MiB")]


CHILD = """
import sys, time
sys.path.insert(0, {folder!r})
import compiled, torch
device, backend, backward = {device!r}, {backend!r}, {backward!r}
torch.manual_seed(0)
model, x = compiled.transformer(4).to(device), torch.randn(compiled.TOKENS).to(device)
start = time.{clock}()
with torch.set_grad_enabled(backward):
    result = torch.compile(model, backend=backend)(x)
    if backward:
        result.sum().backward()
print(time.{clock}() - start)
"""


def start(backend: str, device: str, folder: str, clock: str, *, backward: bool) -> float:
    """Return the seconds to the first result in a new process with its caches in ``folder``.

    With the clock ``process_time`` the processes that it starts do not count: compilers, and the compile workers.
    Python may keep byte code, as installed packages have it.
    """
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TORCH_NEURONX_NEFF_CACHE_DIR": f"{folder}/neff",
        "TORCH_NEURONX_HLO_CACHE_DIR": f"{folder}/hlo",
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": f"{folder}/local",
    }
    text = CHILD.format(
        folder=os.path.dirname(os.path.abspath(__file__)),
        device=device,
        backend=backend,
        backward=backward,
        clock=clock,
    )
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def cold(bench: Bench) -> list[Row]:
    """Measure new processes, without caches and with those of the first."""
    found: dict[str, list[float]] = {}
    clock = "process_time" if bench.cpu_time else "perf_counter"
    for _ in range(max(1, bench.rounds // 5)):
        for backend, device in (("inductor", "cpu"), ("neuron", "neuron"), ("aot_eager", "cpu")):
            for backward in (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    for state in ("cold", "warm"):
                        seconds = start(backend, device, folder, clock, backward=backward)
                        found.setdefault(f"{backend} {state} {backward}", []).append(seconds)
    took = {name: statistics.median(times) for name, times in found.items()}
    return [
        Row(f"{state} {'forward and backward' if backward else 'forward'}, against {other}",
            took[f"{other} {state} {backward}"], took[f"neuron {state} {backward}"], "s")
        for other in ("inductor", "aot_eager")
        for state in ("cold", "warm")
        for backward in (False, True)
    ]  # fmt: skip


def flat(calls: int, recompiles: int) -> list[Row]:
    """Look at allocated device memory and at the process's peak after the first tenth and at the end."""
    rows = []
    compiled = torch.compile(three, backend="neuron")
    x = torch.randn(256, 256).to("neuron")
    for name, count in (("calls", calls), ("recompiles", recompiles)):
        seen = []
        for number in range(count):
            if name == "recompiles":
                torch._dynamo.reset()
                compiled = torch.compile(partial(scaled, by=number), backend="neuron")
            compiled(x, x)
            if number in (count // 10, count - 1):
                gc.collect()
                seen.append((torch.accelerator.memory_allocated() / 2**20, _resident() / 2**20))
        rows.append(Row(f"{count} {name}, device memory", seen[0][0], seen[1][0], "MiB"))
        rows.append(Row(f"{count} {name}, resident memory", seen[0][1], seen[1][1], "MiB"))
    return rows


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def main(
    sections: Annotated[list[Section] | None, typer.Argument(help="what to measure; everything by default")] = None,
    rounds: Annotated[int, typer.Option(help="rounds per figure; cold starts take a fifth of them")] = 15,
    threads: Annotated[int, typer.Option(help="of PyTorch; XLA takes as many")] = torch.get_num_threads(),
    cpu_time: Annotated[bool, typer.Option("--cpu-time", help="count processor time")] = False,
    processes: Annotated[int, typer.Option(help="of each candidate, where it has its own")] = 3,
    calls: Annotated[int, typer.Option(help="calls of `flat`")] = 5000,
    recompiles: Annotated[int, typer.Option(help="recompilations of `flat`")] = 200,
    candidate: Annotated[Candidate | None, typer.Option(help="print this one's times of a section as JSON")] = None,
) -> None:
    """Measure and print a table in Markdown."""
    torch.set_num_threads(threads)
    bench = Bench(rounds, cpu_time, processes)
    if candidate is not None:
        with torch.no_grad():
            for section in sections or list(APART):
                print(json.dumps(APART[section][0](bench, candidate)))
        return
    measure: dict[Section, Callable[[Bench], list[Row]]] = {
        **{section: partial(apart, section=section) for section in APART},
        Section.DEPTH: depth,
        Section.MEMORY: memory,
        Section.COLD: cold,
        Section.FLAT: lambda _: flat(calls, recompiles),
    }
    print("| | other | neuron | unit | ratio |\n|---|---|---|---|---|")
    with torch.no_grad():
        for section in sections or list(Section):
            for row in measure[section](bench):
                print(f"| {row.name} | {row.other:.2f} | {row.neuron:.2f} | {row.unit} | {row.ratio:.2f} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
