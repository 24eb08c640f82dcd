"""Embedding bags: gathers of rows and sums, means or maxima of them by bag, with their gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.indexing import wrap
from torch_neuronx_compile.decompositions.narrow_floats import widened
from torch_neuronx_compile.structured_ops import MAXIMUM, MINIMUM, SUM, gather_rows, scatter_rows

aten = torch.ops.aten
Bags = tuple[Tensor, Tensor, Tensor, Tensor]
_SUM, _MEAN, _MAX = 0, 1, 2


def _bag_of(count: int, offsets: Tensor, bags: int) -> Tensor:
    """Return for each index the bag that it is in: the last one that has begun."""
    place = torch.arange(count, device=offsets.device)
    return (place.unsqueeze(1) >= offsets[:bags]).to(torch.int64).sum(1) - 1


def _counted(indices: Tensor, padding_idx: int) -> Tensor:
    return indices != padding_idx if padding_idx >= 0 else torch.ones_like(indices, dtype=torch.bool)


def _to_bags(values: Tensor, bag: Tensor, bags: int, reduction: str, start: float | int = 0) -> Tensor:
    return scatter_rows(values.new_full([bags, *values.shape[1:]], start), bag, values, reduction)


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Bags:
    """Decompose into output, the bag of each index, the bags' sizes, and for maxima the chosen index."""
    bags = offsets.shape[0] - int(include_last_offset)
    indices, offsets = indices.to(torch.int64), offsets.to(torch.int64)
    bag = _bag_of(indices.shape[0], offsets, bags)
    counted = _counted(indices, padding_idx)
    size = _to_bags(counted.to(torch.int64), bag, bags, SUM)
    rows = gather_rows(weight, wrap(indices, weight.shape[0]))
    wide = widened(rows)
    if mode == _MAX:
        least = float("-inf")
        best = _to_bags(torch.where(counted.unsqueeze(1), wide, least), bag, bags, MAXIMUM, least)
        chosen = (wide == gather_rows(best, bag)) & counted.unsqueeze(1)
        count = indices.shape[0]
        place = torch.arange(count, device=indices.device).unsqueeze(1)
        first = _to_bags(torch.where(chosen, place, count), bag, bags, MINIMUM, count)
        where = torch.where(first < count, gather_rows(indices, first), 0)
        output = torch.where(size.unsqueeze(1) > 0, best, 0.0).to(weight.dtype)
        return output, bag, size, where
    if per_sample_weights is not None:
        wide = wide * per_sample_weights.to(wide.dtype).unsqueeze(1)
    total = _to_bags(torch.where(counted.unsqueeze(1), wide, 0.0), bag, bags, SUM)
    if mode == _MEAN:
        total = total / size.clamp(min=1).unsqueeze(1)
    return total.to(weight.dtype), bag, size, size


def embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Decompose into a scatter of the bags' gradients to the rows that went in."""
    indices = indices.to(torch.int64)
    wide = widened(grad)
    zeros = wide.new_zeros([num_weights, grad.shape[1]])
    if mode == _MAX:
        features = grad.shape[1]
        full = torch.where(bag_size.unsqueeze(1) > 0, wide, 0.0)
        where = maximum_indices * features + torch.arange(features, device=grad.device)
        flat = scatter_rows(zeros.reshape(-1), where.reshape(-1), full.reshape(-1), SUM)
        return flat.reshape(zeros.shape).to(grad.dtype)
    if mode == _MEAN:
        wide = wide / bag_size.clamp(min=1).unsqueeze(1)
    rows = gather_rows(wide, offset2bag.to(torch.int64))
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(rows.dtype).unsqueeze(1)
    if scale_grad_by_freq:
        ones = torch.ones_like(indices, dtype=rows.dtype)
        count = scatter_rows(rows.new_zeros([num_weights]), indices, ones, SUM)
        rows = rows / gather_rows(count, indices).unsqueeze(1)
    rows = torch.where(_counted(indices, padding_idx).unsqueeze(1), rows, 0.0)
    return scatter_rows(zeros, indices, rows, SUM).to(grad.dtype)


def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Decompose as :func:`embedding_bag_dense_backward`; a gradient in a graph is dense."""
    return embedding_bag_dense_backward(
        grad,
        indices,
        offset2bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


def per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """Decompose into the products of each row with its bag's gradient."""
    indices = indices.to(torch.int64)
    products = (gather_rows(grad, offset2bag.to(torch.int64)) * gather_rows(weight, indices)).sum(1)
    return torch.where(_counted(indices, padding_idx), products, 0.0)


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag,
    aten._embedding_bag_backward.default: embedding_bag_backward,
    aten._embedding_bag_dense_backward.default: embedding_bag_dense_backward,
    aten._embedding_bag_per_sample_weights_backward.default: per_sample_weights_backward,
}
