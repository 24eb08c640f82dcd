"""Attention as one operator, and its gradient as one, until a graph is lowered.

PyTorch's partitioner then keeps the result and one number per query for the backward graph, never the attention weights
or their parts. The weights are computed once more from those numbers, as in "FlashAttention" (Dao et al. 2022, section
3.1 and appendix B.2). Everything is float32 inside, as in PyTorch's own kernels. The definitions here serve graphs that
run in eager mode, and gradients that the operators do not give.
"""

import math
from typing import Any

import torch
from torch import Tensor

from torch_neuronx_compile.ops import Operator, define

Gradients = tuple[Tensor, Tensor, Tensor]


def attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the attention's result and, per query, the float32 logarithm of the sum of its scores' exponentials.

    Operands are [batch, heads, length, size], keys and values may have fewer heads than queries; ``bias`` is added to
    the scores [batch, heads, queries, keys], or broadcast to them. The result is [batch, length, heads, size], which
    the next projection reads without a transpose. A query that may look at no key gives zeros.
    """
    define()
    output, logsumexp = torch.ops.neuron_compile.attention(query, key, value, bias, causal, scale)
    return output, logsumexp


def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    output: Tensor,
    logsumexp: Tensor,
    causal: bool,
    scale: float,
) -> Gradients:
    """Return the gradients of query, key and value, given what :func:`attention` gave for them."""
    define()
    found: Gradients = torch.ops.neuron_compile.attention_backward(
        grad, query, key, value, bias, output, logsumexp, causal, scale
    )
    return found


def weigh(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Compute what :func:`attention` gives."""
    scores = _scores(query, key, bias, causal, scale)
    largest = scores.amax(-1, keepdim=True) if key.shape[-2] else scores.new_zeros((*scores.shape[:-1], 1))
    largest = torch.where(largest == -math.inf, 0.0, largest)
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    unseeing = total == 0
    output = (weights @ _repeat(value, query).to(torch.float32)) / torch.where(unseeing, 1.0, total)
    logsumexp = torch.where(unseeing, 0.0, total.log() + largest).squeeze(-1)
    return output.to(query.dtype).transpose(1, 2).contiguous(), logsumexp


def differentiate(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    output: Tensor,
    logsumexp: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute what :func:`attention_backward` gives, and the gradient of the scores, in float32."""
    weights = (_scores(query, key, bias, causal, scale) - logsumexp.unsqueeze(-1)).exp()
    wide = grad.to(torch.float32)
    wide_key, wide_value = (_repeat(tensor, query).to(torch.float32) for tensor in (key, value))
    along = (wide * output.transpose(1, 2).to(torch.float32)).sum(-1, keepdim=True)
    grad_scores = weights * (wide @ wide_value.transpose(-2, -1) - along)
    grad_query = ((grad_scores @ wide_key) * scale).to(query.dtype)
    grad_key = _gather(grad_scores.transpose(-2, -1) @ (query.to(torch.float32) * scale), key)
    grad_value = _gather(weights.transpose(-2, -1) @ wide, value)
    return grad_query, grad_key, grad_value, grad_scores


def _gradients(*arguments: Any) -> Gradients:
    return differentiate(*arguments)[:3]


def _scores(query: Tensor, key: Tensor, bias: Tensor | None, causal: bool, scale: float) -> Tensor:
    keys = _repeat(key, query).to(torch.float32).transpose(-2, -1)
    scores = (query.to(torch.float32) * scale) @ keys
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


def _fake_attention(query: Tensor, key: Tensor, value: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    batch, heads, length, _size = query.shape
    output = query.new_empty((batch, length, heads, value.shape[-1]))
    return output, query.new_empty((batch, heads, length), dtype=torch.float32)


def _fake_backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: object) -> Gradients:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


OPERATORS: tuple[Operator, ...] = (
    (
        "attention(Tensor query, Tensor key, Tensor value, Tensor? bias, bool causal, float scale) -> (Tensor, Tensor)",
        weigh,
        _fake_attention,
    ),
    (
        "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor output,"
        " Tensor logsumexp, bool causal, float scale) -> (Tensor, Tensor, Tensor)",
        _gradients,
        _fake_backward,
    ),
)
"""Schemas, kernels, and what they give for fake tensors."""
