"""Means and variances in groups, as the vector engine keeps them: count, mean, count times variance."""

import torch


def of_halves(x: torch.Tensor) -> torch.Tensor:
    """Return the statistics of the even and of the odd columns of ``x``: (rows, 6)."""
    parts = []
    for half in (x[:, 0::2], x[:, 1::2]):
        count = half.shape[1]
        if count == 0:
            parts.append(x.new_zeros(x.shape[0], 3))
            continue
        mean = half.mean(1, keepdim=True)
        spread = (half - mean).square().sum(1, keepdim=True)
        parts.append(torch.cat([torch.full_like(mean, count), mean, spread], 1))
    return torch.cat(parts, 1)


def of_groups(groups: torch.Tensor) -> torch.Tensor:
    """Return mean and variance of all elements, from groups (rows, groups, 3): (rows, 2)."""
    count, mean, spread = groups.unbind(2)
    total = count.sum(1, keepdim=True)
    overall = (count * mean).sum(1, keepdim=True) / total
    variance = (spread + count * (mean - overall).square()).sum(1, keepdim=True) / total
    return torch.cat([overall, variance], 1)
