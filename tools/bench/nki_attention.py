"""Measure the attention kernel in the simulator against the same tiles in torch, and in a plain NumPy interpreter.

    python -m tools.bench.nki_attention [--heads 8] [--queries 2048] [--depth 128]

One thread, seconds of processor time, the least of the repeats, in which the ways take turns. *tiles* is the work of
the kernel's tiles without its instructions: per 128 queries two products, a maximum and an exponential. *instructions*
is every instruction of the kernel as one call of torch, *NumPy* as one call of NumPy that makes its operands float32
and its result the type.
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy reads it once, when it is imported

import ml_dtypes
import numpy as np
import torch

from torch_neuronx_nki.jit import simulate
from torch_neuronx_nki.kernels.attention import attention_forward

TILE, BANK = 128, 512


def tiles(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Return attention, 128 queries at a time; products are of float32, as the simulator's."""
    out = torch.empty_like(query)
    for head in range(query.shape[0]):
        turned, values = key[head].float().T, value[head].float()
        for first in range(0, query.shape[1], TILE):
            scores = query[head, first : first + TILE].float() @ turned
            shift = scores.amax(1, keepdim=True)
            weights = torch.exp((scores - shift) * scale)
            total = weights.sum(1, keepdim=True)
            out[head, first : first + TILE] = (weights.to(query.dtype).float() @ values) / total
    return out


def turn(dst: torch.Tensor, rows: torch.Tensor) -> None:
    """Write tiles of ``rows`` (128, tiles, columns) to ``dst`` (columns, tiles, 128), by four and through a bank."""
    for first in range(0, rows.shape[1], 4):
        size = min(4, rows.shape[1] - first)
        bank = torch.empty(rows.shape[2], size, TILE, dtype=rows.dtype)
        for i in range(size):
            bank[:, i].copy_(rows[:, first + i].T)
        dst[:, first : first + size].copy_(bank)


def instructions(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Return attention by the kernel's instructions, each a call of torch into memory that is new, as a kernel's is."""
    heads, queries, depth = query.shape
    keys, dtype = key.shape[1], query.dtype
    parts = keys // TILE
    out, sums = torch.empty_like(query), torch.empty(heads, queries, 1)
    for head in range(heads):
        rows = key[head].view(parts, TILE, depth).transpose(0, 1).contiguous()
        values = value[head].view(parts, TILE, depth).transpose(0, 1).contiguous()
        turned = torch.empty(depth, parts, TILE, dtype=dtype)
        turn(turned, rows)
        turned = turned.view(depth, keys)
        for first in range(0, queries, TILE):
            tile = query[head, first : first + TILE].clone().view(TILE, 1, depth)
            part = torch.empty(depth, 1, TILE, dtype=dtype)
            turn(part, tile)
            stationary = part[:, 0]
            scores = torch.empty(TILE, keys)
            for start in range(0, keys, BANK):
                torch.mm(
                    stationary.float().T, turned[:, start : start + BANK].float(), out=scores[:, start : start + BANK]
                )
            top = scores.amax(1, keepdim=True)
            shift = top * -scale
            weights = torch.exp(torch.addcmul(shift, scores, torch.tensor(scale)))
            total = weights.sum(1, keepdim=True)
            weights = weights.to(dtype)
            across = torch.empty(TILE, parts, TILE, dtype=dtype)
            turn(across, weights.view(TILE, parts, TILE))
            product = torch.zeros(TILE, depth)
            for i in range(parts):
                product.addmm_(across[:, i].float().T, values[:, i].float())
            inverse = total.reciprocal()
            stored = (product * inverse).to(dtype)
            out[head, first : first + TILE].copy_(stored)
            logarithm = top * scale + total.log()
            sums[head, first : first + TILE].copy_(logarithm)
    return out


def turn_in_numpy(dst: np.ndarray, rows: np.ndarray) -> None:
    """Do as :func:`turn`."""
    for first in range(0, rows.shape[1], 4):
        size = min(4, rows.shape[1] - first)
        bank = np.empty((rows.shape[2], size, TILE), rows.dtype)
        for i in range(size):
            bank[:, i] = rows[:, first + i].T
        dst[:, first : first + size] = bank


def interpreted(query: np.ndarray, key: np.ndarray, value: np.ndarray, scale: float) -> np.ndarray:
    """Return attention by the kernel's instructions, each a call of NumPy on float32 copies of its operands."""
    heads, queries, depth = query.shape
    keys, dtype = key.shape[1], query.dtype
    parts = keys // TILE
    out, sums = np.empty_like(query), np.empty((heads, queries, 1), np.float32)

    def wide(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32)

    for head in range(heads):
        rows = np.array(key[head].reshape(parts, TILE, depth).swapaxes(0, 1))
        values = np.array(value[head].reshape(parts, TILE, depth).swapaxes(0, 1))
        turned = np.empty((depth, parts, TILE), dtype)
        turn_in_numpy(turned, rows)
        turned = turned.reshape(depth, keys)
        for first in range(0, queries, TILE):
            tile = np.array(query[head, first : first + TILE]).reshape(TILE, 1, depth)
            part = np.empty((depth, 1, TILE), dtype)
            turn_in_numpy(part, tile)
            stationary = part[:, 0]
            scores = np.empty((TILE, keys), np.float32)
            for start in range(0, keys, BANK):
                scores[:, start : start + BANK] = wide(stationary).T @ wide(turned[:, start : start + BANK])
            top = wide(scores).max(1, keepdims=True)
            shift = top * np.float32(-scale)
            weights = np.exp(wide(scores) * np.float32(scale) + shift)
            total = weights.sum(1, keepdims=True)
            weights = weights.astype(dtype)
            across = np.empty((TILE, parts, TILE), dtype)
            turn_in_numpy(across, weights.reshape(TILE, parts, TILE))
            product = np.zeros((TILE, depth), np.float32)
            for i in range(parts):
                product += wide(across[:, i]).T @ wide(values[:, i])
            inverse = np.float32(1) / total
            stored = (product * inverse).astype(dtype)
            out[head, first : first + TILE] = stored
            logarithm = top * np.float32(scale) + np.log(total)
            sums[head, first : first + TILE] = logarithm
    return out


def _timed(functions: list[Callable[[], torch.Tensor]], repeats: int) -> list[float]:
    best = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            best[i] = min(best[i], time.process_time() - start)
    return best


_WAYS = ("simulated", "verified", "instructions", "tiles", "NumPy")


def _measure(given: list[torch.Tensor], scale: float, repeats: int) -> list[float]:
    """Return seconds for each way, after a look at what it computes."""
    query, key, value = given
    narrow = np.float32 if given[0].dtype is torch.float32 else ml_dtypes.bfloat16
    q, k, v = (tensor.float().numpy().astype(narrow) for tensor in given)
    plain, checked = (simulate(attention_forward, verify=mode) for mode in ("off", "strict"))
    ways: list[Callable[[], torch.Tensor]] = [
        lambda: plain(*given, scale, False)[0],
        lambda: checked(*given, scale, False)[0],
        lambda: instructions(query, key, value, scale),
        lambda: tiles(query, key, value, scale),
        lambda: torch.from_numpy(interpreted(q, k, v, scale).astype(np.float32)),
    ]
    expected = torch.nn.functional.scaled_dot_product_attention(query.float(), key.float(), value.float())
    for name, way in zip(_WAYS, ways, strict=True):
        difference = (way().float() - expected).abs().max().item()
        assert difference < (1e-5 if given[0].dtype is torch.float32 else 1e-2), (name, difference)
    return _timed(ways, repeats)


def main() -> None:
    """Print one line per type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--queries", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    scale = asked.depth**-0.5
    print(
        f"{asked.heads} x {asked.queries} x {asked.depth}" + "".join(f"{name:>14}" for name in _WAYS) + "   s", end=""
    )
    print(f"{'verified / tiles':>20}{'/ NumPy':>10}")
    for dtype in (torch.float32, torch.bfloat16):
        shape = (asked.heads, asked.queries, asked.depth)
        found = _measure([torch.randn(shape).to(dtype) for _ in range(3)], scale, asked.repeats)
        _, verified, _, of_tiles, of_numpy = found
        print(f"{dtype!s:16}" + "".join(f"{seconds:14.3f}" for seconds in found), end="")
        print(f"{verified / of_tiles:24.2f}{verified / of_numpy:10.2f}")


if __name__ == "__main__":
    with torch.no_grad():
        main()
