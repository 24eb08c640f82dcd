"""Scaled dot-product attention that keeps one number per query for its backward, not the attention weights.

The weights are computed once more in the backward graph from those numbers, as in "FlashAttention" (Dao et al. 2022,
section 3.1 and appendix B.2). Everything is float32 inside, as in PyTorch's own kernels; a query that may look at no
key gives zeros.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten
Forward = tuple[Tensor, Tensor, None, None, int, int, Tensor, Tensor, None]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Forward:
    """Decompose; tensors are [batch, heads, length, size], keys and values may have fewer heads than queries."""
    wide = query.to(torch.float32) * _factor(query, scale)
    scores = _hide(_products(wide, key), attn_bias, is_causal)
    largest = scores.amax(-1, keepdim=True)
    largest = torch.where(largest == -math.inf, 0.0, largest)
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    output = (weights @ _repeat(value, query).to(torch.float32)) / torch.where(total == 0, 1.0, total)
    logsumexp = (total.log() + largest).squeeze(-1)
    number = torch.zeros((), dtype=torch.int64, device=query.device)
    return output.to(query.dtype), logsumexp, None, None, query.shape[-2], key.shape[-2], number, number, None


def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: Sequence[bool],
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Decompose the backward of :func:`attention`."""
    seen = logsumexp.unsqueeze(-1)
    seen = torch.where(seen == -math.inf, math.inf, seen)
    # Scaled here and not before the product, as the forward does: AOT Autograd would find the products to be the same,
    # and keep them.
    factor = _factor(query, scale)
    scores = _hide(_products(query.to(torch.float32), key) * factor, attn_bias, is_causal)
    weights = (scores - seen).exp()
    grad = grad_out.to(torch.float32)
    wide_key, wide_value = (_repeat(tensor, query).to(torch.float32) for tensor in (key, value))
    along = (grad * out.to(torch.float32)).sum(-1, keepdim=True)
    grad_scores = weights * (grad @ wide_value.transpose(-2, -1) - along)
    grad_query = grad_key = grad_value = grad_bias = None
    if grad_input_mask[0]:
        grad_query = ((grad_scores @ wide_key) * factor).to(query.dtype)
    if grad_input_mask[1]:
        wide_query = query.to(torch.float32) * factor
        grad_key = _gather(grad_scores.transpose(-2, -1) @ wide_query, key)
    if grad_input_mask[2]:
        grad_value = _gather(weights.transpose(-2, -1) @ grad, value)
    if grad_input_mask[3] and attn_bias is not None:
        grad_bias = grad_scores.sum_to_size(attn_bias.shape).to(attn_bias.dtype)
    return grad_query, grad_key, grad_value, grad_bias


def _factor(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale


def _products(query: Tensor, key: Tensor) -> Tensor:
    return query @ _repeat(key, query).to(torch.float32).transpose(-2, -1)


def _hide(scores: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    if causal:
        rows = torch.arange(scores.shape[-2], device=scores.device).unsqueeze(-1)
        columns = torch.arange(scores.shape[-1], device=scores.device)
        scores = torch.where(columns <= rows, scores, -math.inf)
    return scores if bias is None else scores + bias.to(torch.float32)


def _repeat(tensor: Tensor, query: Tensor) -> Tensor:
    """Give ``tensor`` the heads of ``query``: each of its own serves as many queries in a row."""
    times = query.shape[1] // tensor.shape[1]
    if times == 1:
        return tensor
    batch, heads, length, size = tensor.shape
    return tensor.unsqueeze(2).expand(batch, heads, times, length, size).reshape(batch, heads * times, length, size)


def _gather(gradient: Tensor, tensor: Tensor) -> Tensor:
    """Undo :func:`_repeat` for a gradient."""
    times = gradient.shape[1] // tensor.shape[1]
    if times > 1:
        batch, heads, length, size = tensor.shape
        gradient = gradient.reshape(batch, heads, times, length, size).sum(2)
    return gradient.to(tensor.dtype)


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten._scaled_dot_product_fused_attention_overrideable.default: attention,
    aten._scaled_dot_product_fused_attention_overrideable_backward.default: attention_backward,
}
