"""Losses that torch computes in chunks, which save memory in eager mode, as one product and one softmax."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions._compat import chunked_cross_entropy, chunked_cross_entropy_of_rows


def _log_probabilities(input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    logits = input.to(dtype) @ linear_weight.to(dtype).mT
    return torch.log_softmax(logits if linear_bias is None else logits + linear_bias.to(dtype), 1)


def _row_weights(target: Tensor, weight: Tensor | None, ignore_index: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return what each row's loss counts, nothing where the target is ignored, and the targets that count."""
    ignored = target == ignore_index
    safe = torch.where(ignored, 0, target)
    rows = torch.ones_like(target, dtype=dtype) if weight is None else weight.to(dtype)[safe]
    return torch.where(ignored, 0.0, rows), safe


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    compute_input_grad: bool,
    compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the loss and, where asked for, its gradients: the softmax less the target's one-hot row, weighted."""
    if label_smoothing:
        return NotImplemented  # type: ignore[no-any-return]
    found = _log_probabilities(input, linear_weight, linear_bias, acc_dtype)
    rows, safe = _row_weights(target, weight, ignore_index, acc_dtype)
    if reduction == "mean":
        total = rows.sum()
        rows = rows / torch.where(total == 0, math.nan, total)
    loss = -(found.gather(1, safe.unsqueeze(1)).squeeze(1) * rows).sum()
    if reduction == "mean" and target.numel() == 0:
        loss = torch.full_like(loss, math.nan)
    hot = safe.unsqueeze(1) == torch.arange(found.shape[1], device=found.device)
    slope = (found.exp() - hot.to(acc_dtype)) * rows.unsqueeze(1)
    empty = input.new_zeros((0, 0))
    return (
        loss.to(input.dtype),
        (slope @ linear_weight.to(acc_dtype)).to(input.dtype) if compute_input_grad else empty,
        (slope.mT @ input.to(acc_dtype)).to(input.dtype) if compute_linear_weight_grad else empty,
        slope.sum(0).to(input.dtype) if compute_linear_bias_grad else input.new_zeros((0,)),
    )


def linear_cross_entropy_of_rows(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Tensor:
    """Return the loss of each row."""
    found = _log_probabilities(input, linear_weight, linear_bias, acc_dtype)
    rows, safe = _row_weights(target, weight, ignore_index, acc_dtype)
    return (-found.gather(1, safe.unsqueeze(1)).squeeze(1) * rows).to(input.dtype)


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    chunked_cross_entropy: linear_cross_entropy,
    chunked_cross_entropy_of_rows: linear_cross_entropy_of_rows,
}
