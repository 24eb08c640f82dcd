"""What collectives cost inside a compiled graph, beside the same collectives in eager mode.

    python -m tools.bench.compiled_collectives [--ranks 2] [--markdown]

Every rank runs one function of eight collectives, each with an addition in front of it, compiled and in eager mode, in
turns; times of rank 0 as the benchmark of eager collectives takes them, one thread per rank. Both ways end in Gloo, so
the ratio is the path to it.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.multiprocessing as mp
from torch import Tensor

from tools.bench.collectives import Turns, quiet_seconds

COUNT = 8
SIZES = (1 << 10, 1 << 16, 1 << 20)
Function = Callable[[Tensor], Tensor]


def collectives(size: int) -> dict[str, Function]:
    """Return one function per collective; every one keeps the shape of its input."""
    group = dist.group.WORLD
    assert group is not None

    def all_reduce(x: Tensor) -> Tensor:
        for _ in range(COUNT):
            x = functional.all_reduce(x + 1, "avg", group)
        return x + 1

    def gather_and_scatter(x: Tensor) -> Tensor:
        for _ in range(COUNT // 2):
            x = functional.all_gather_single(x + 1, 0, group)
            x = functional.reduce_scatter_single(x + 1, "avg", 0, group)
        return x + 1

    def all_to_all(x: Tensor) -> Tensor:
        for _ in range(COUNT):
            x = functional.all_to_all_single(x + 1, None, None, group)
        return x + 1

    return {"all_reduce": all_reduce, "all_gather, reduce_scatter": gather_and_scatter, "all_to_all": all_to_all}


def rank_main(rank: int, ranks: int, folder: str, turns: int, markdown: bool) -> None:
    """Measure on one rank; rank 0 prints."""
    torch.set_num_threads(1)
    for name in ("TORCH_NEURONX_NEFF_CACHE_DIR", "TORCH_NEURONX_HLO_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ[name] = str(Path(folder) / name.lower())
    backends = "cpu:gloo,neuron:neuron"
    dist.init_process_group(backends, init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    rows = []
    for size in SIZES:
        x = torch.zeros(size, device="neuron")
        calls = max(2, min(20, (1 << 19) // size))
        for name, eager in collectives(size).items():
            run = torch.compile(eager, backend="neuron", fullgraph=True)
            assert torch.allclose(run(x).cpu(), eager(x).cpu())
            ways = {"eager": partial(eager, x), "compiled": partial(run, x)}
            times = quiet_seconds(ways, Turns(turns, calls))
            rows.append((name, size, times["eager"] * 1e6, times["compiled"] * 1e6))
    if rank == 0:
        if markdown:
            print("| eight collectives | float32 | eager us | compiled us | ratio |\n|---|---|---|---|---|")
        for name, size, one, other in rows:
            cells = (name, f"{size}", f"{one:.0f}", f"{other:.0f}", f"{other / one:.2f}")
            print(f"| {' | '.join(cells)} |" if markdown else "  ".join(cells))
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options.ranks, folder, options.turns, options.markdown)
        mp.spawn(rank_main, args=arguments, nprocs=options.ranks)  # type: ignore[attr-defined, no-untyped-call]


if __name__ == "__main__":
    main()
