"""Measure the simulator of NKI kernels: what an instruction costs beyond its arithmetic.

    python -m tools.bench.nki

Each instruction runs on 128 x 512 tiles inside of a kernel, sliced as kernels slice; beside it, the same arithmetic as
direct calls of torch on the same tiles. The difference is the overhead.
"""

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch

from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit, simulate

ROWS, COLUMNS = 128, 512


def _timed(function: Callable[[], object], count: int, repeats: int = 7) -> float:
    """Return the least microseconds of this thread per call: others on the machine do not count."""
    best = float("inf")
    for _ in range(repeats):
        start = time.thread_time()
        for _ in range(count):
            function()
        best = min(best, time.thread_time() - start)
    return best / count * 1e6


def _direct(dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    a, b, out = (torch.randn(ROWS, COLUMNS).to(dtype) for _ in range(3))
    scale, small = torch.randn(ROWS, 1), torch.randn(ROWS, ROWS).to(dtype)
    product, wide = torch.empty(ROWS, COLUMNS), torch.empty(ROWS, COLUMNS)
    top = torch.empty(ROWS, 1)
    return {
        "dma_copy": lambda: out.copy_(a),
        "tensor_copy": lambda: out.copy_(a),
        "memset": lambda: out.fill_(0.0),
        "tensor_tensor": lambda: torch.add(a, b, out=out),
        "tensor_scalar": lambda: torch.add(torch.mul(a.float(), scale), 1.0, out=wide),
        "activation": lambda: torch.exp(torch.mul(a.float(), 0.5), out=wide),
        "tensor_reduce": lambda: top.copy_(torch.amax(a.float(), (1,), keepdim=True)),
        "nc_matmul": lambda: torch.mm(small.float().T, b.float(), out=product),
    }


def _simulated(dtype: str, count: int, verify: str = "strict") -> dict[str, float]:
    results: dict[str, float] = {}

    def kernel() -> None:
        source = nl.zeros((ROWS, COLUMNS), dtype, nl.hbm)
        a, b, out = (nl.zeros((ROWS, COLUMNS), dtype) for _ in range(3))
        wide = nl.zeros((ROWS, COLUMNS), nl.float32)
        scale, top = nl.zeros((ROWS, 1), nl.float32), nl.zeros((ROWS, 1), nl.float32)
        small = nl.zeros((ROWS, ROWS), dtype)
        product = nl.ndarray((ROWS, COLUMNS), nl.float32, nl.psum)
        p, f = nl.ds(0, ROWS), nl.ds(0, COLUMNS)
        cases: dict[str, Callable[[], object]] = {
            "dma_copy": lambda: nisa.dma_copy(out[p, f], source[p, f]),
            "tensor_copy": lambda: nisa.tensor_copy(out[p, f], a[p, f]),
            "memset": lambda: nisa.memset(out[p, f], 0.0),
            "tensor_tensor": lambda: nisa.tensor_tensor(out[p, f], a[p, f], b[p, f], nl.add),
            "tensor_scalar": lambda: nisa.tensor_scalar(
                wide[p, f], a[p, f], nl.multiply, scale[p, 0:1], op1=nl.add, operand1=1.0
            ),
            "activation": lambda: nisa.activation(wide[p, f], nl.exp, a[p, f], scale=0.5),
            "tensor_reduce": lambda: nisa.tensor_reduce(top[p, 0:1], nl.maximum, a[p, f], 1),
            "nc_matmul": lambda: nisa.nc_matmul(product[p, f], small[p, 0:ROWS], b[p, f], accumulate=False),
        }
        for name, call in cases.items():
            call()
            results[name] = _timed(call, count)

    simulate(jit(kernel), verify=verify)()
    return results


def instructions(count: int) -> None:
    """Print microseconds per instruction: simulated, direct, and the difference."""
    print(f"{'':10}{'instruction':16}{'simulated':>10}{'direct':>10}{'overhead':>10}   us, {ROWS} x {COLUMNS}")
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        simulated = _simulated(name, count)
        for instruction, call in _direct(dtype).items():
            call()
            direct = _timed(call, count)
            took = simulated[instruction]
            print(f"{name:10}{instruction:16}{took:10.1f}{direct:10.1f}{took - direct:10.1f}")


def many(count: int) -> None:
    """Print the time of a kernel with many instructions, per instruction, in tenths of it."""
    marks: list[float] = []

    def kernel() -> None:
        tile = nl.zeros((ROWS, 8), nl.float32)
        for _ in range(10):
            start = time.thread_time()
            for step in range(count // 10):
                at = step % 8
                nisa.tensor_scalar(tile[:, at : at + 1], tile[:, at : at + 1], nl.add, 1.0)
            marks.append((time.thread_time() - start) / (count // 10) * 1e6)

    simulate(jit(kernel))()
    print(f"{count} instructions on 128 x 1 tiles, us each per tenth: {' '.join(f'{mark:.1f}' for mark in marks)}")


def verified(count: int) -> None:
    """Print what the verifier adds to an instruction, and the memory that it keeps while a kernel runs."""
    seconds: dict[str, float] = {}
    resident: dict[str, int] = {}

    def kernel(mode: str) -> None:
        out = nl.ndarray((ROWS, 64), nl.float32, nl.shared_hbm)
        tile = nl.zeros((ROWS, 8), nl.float32)
        before = 0
        start = time.thread_time()
        for step in range(count):
            at = step % 8
            if at == 0:
                tile = nl.ndarray((ROWS, 8), nl.float32)
            nisa.memset(tile[:, at : at + 1], 0.0)
            if at == 7:
                nisa.dma_copy(out[:, nl.ds(step // 8 % 8 * 8, 8)], tile)
            if step == count // 10:
                before = _resident()
        took = (time.thread_time() - start) / (count * 9 / 8) * 1e6
        seconds[mode] = min(seconds.get(mode, took), took)
        resident[mode] = _resident() - before

    for _ in range(3):
        for mode in ("off", "strict"):
            simulate(jit(kernel), verify=mode)(mode)
    mixed = {mode: sum(_simulated("float32", 200, mode).values()) for mode in ("off", "strict")}
    print(f"the eight instructions on {ROWS} x {COLUMNS} tiles: {mixed['off']:.0f} us without the verifier, "
          f"{mixed['strict']:.0f} with it")  # fmt: skip
    print(f"{count * 9 // 8} instructions, each on other elements, {count // 8} tiles: {seconds['off']:.2f} us each "
          f"without the verifier, {seconds['strict']:.2f} with it; resident memory grows by {resident['off'] >> 10} "
          f"and {resident['strict'] >> 10} KiB after the first tenth")  # fmt: skip


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="calls per measurement")
    parser.add_argument("--verifier", action="store_true", help="measure only what the verifier adds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        if arguments.verifier:
            verified(100_000)
            return
        instructions(arguments.count)
        many(100_000)


if __name__ == "__main__":
    main()
