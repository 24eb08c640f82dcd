"""Random operators of this package's own, as FX sees them: pure, with their seed as an input."""

import torch

from torch_neuronx_compile.ops import Operator


def draw(device: torch.device, count: int) -> torch.Tensor:
    """Return ``count`` seeds from the device's generator, as an int64 tensor on the CPU."""
    from torch_neuronx import _C

    index = device.index
    return torch.tensor([_C.draw_seed(index) for _ in range(count)], dtype=torch.int64)


def _draw_seed(index: int, device: torch.device) -> torch.Tensor:
    return draw(device, 1)[0].to(device)


def _uniform(seed: torch.Tensor, size: list[int]) -> torch.Tensor:
    return (_bits(seed, size) >> 8).to(torch.float32) * 2.0**-24


def _integers(seed: torch.Tensor, low: int, high: int, size: list[int]) -> torch.Tensor:
    return ((_bits(seed, size) * (high - low)) >> 32) + low


def _bits(seed: torch.Tensor, size: list[int]) -> torch.Tensor:
    """Return 32 random bits per element, the ones that XLA:CPU gives for StableHLO's default generator.

    That is Philox 4x32 with 10 rounds; XLA puts the key into the upper half of the counter as well.
    """
    count = 1
    for extent in size:
        count *= extent
    mask = 0xFFFFFFFF
    blocks = torch.arange((count + 3) // 4, dtype=torch.int64, device=seed.device)
    key0, key1 = seed & mask, (seed >> 32) & mask
    x0, x1, x2, x3 = blocks & mask, blocks >> 32, key0.expand_as(blocks), key1.expand_as(blocks)
    for _ in range(10):
        high0, low0 = _multiply(x0, 0xD2511F53)
        high1, low1 = _multiply(x2, 0xCD9E8D57)
        x0, x1, x2, x3 = high1 ^ x1 ^ key0, low1, high0 ^ x3 ^ key1, low0
        key0, key1 = (key0 + 0x9E3779B9) & mask, (key1 + 0xBB67AE85) & mask
    return torch.stack((x0, x1, x2, x3), -1).flatten()[:count].reshape(size)


def _multiply(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the high and the low half of a 32 by 32 bit product; int64 would overflow, so in 16-bit parts."""
    low = a * (b & 0xFFFF)
    high = a * (b >> 16) + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def _fake_draw_seed(index: int, device: torch.device) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64, device=device)


def _fake_uniform(seed: torch.Tensor, size: list[int]) -> torch.Tensor:
    return torch.empty(size, dtype=torch.float32, device=seed.device)


def _fake_integers(seed: torch.Tensor, low: int, high: int, size: list[int]) -> torch.Tensor:
    return torch.empty(size, dtype=torch.int64, device=seed.device)


# draw_seed is impure, but lacks the tag nondeterministic_seeded: the partitioner would refuse to recompute past it.
OPERATORS: tuple[Operator, ...] = (
    ("draw_seed(int index, Device device) -> Tensor", _draw_seed, _fake_draw_seed),
    ("uniform(Tensor seed, int[] size) -> Tensor", _uniform, _fake_uniform),
    ("integers(Tensor seed, int low, int high, int[] size) -> Tensor", _integers, _fake_integers),
)
"""Schemas, kernels, and what they give for fake tensors."""
