"""Scaled dot-product attention as this package's operators for it, which keep one number per query for the backward."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile import attention_ops
from torch_neuronx_compile.decompositions.strides import laid_out

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
    """Decompose; tensors are [batch, heads, length, size], keys and values may have fewer heads than queries.

    The result has the query's layout where the CPU's kernel gives it that, else it is contiguous.
    """
    compute = attention_ops.weigh if _is_empty(query, key, value) else attention_ops.attention
    output, logsumexp = compute(query, key, value, _four(attn_bias), is_causal, _factor(query, scale))
    number = torch.zeros((), dtype=torch.int64, device=query.device)
    output = output.transpose(1, 2)
    output = laid_out(output, query.stride()) if _fits_kernel(query, key, value, attn_bias) else output.contiguous()
    return output, logsumexp, None, None, query.shape[-2], key.shape[-2], number, number, None


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
    bias, factor = _four(attn_bias), _factor(query, scale)
    arguments = (grad_out, query, key, value, bias, out.transpose(1, 2), logsumexp, is_causal, factor)
    grad_bias = None
    if (attn_bias is not None and grad_input_mask[3]) or _is_empty(query, key, value):
        *found, grad_scores = attention_ops.differentiate(*arguments)
        if attn_bias is not None and grad_input_mask[3]:
            grad_bias = grad_scores.sum_to_size(attn_bias.shape).to(attn_bias.dtype)
    else:
        found = list(attention_ops.attention_backward(*arguments))
    grads = [grad if wanted else None for grad, wanted in zip(found, grad_input_mask, strict=False)]
    return grads[0], grads[1], grads[2], grad_bias


def _fits_kernel(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> bool:
    """Return whether the CPU's flash kernel takes the call: by ``ATen/native/transformers/sdp_utils_cpp.h``."""
    if any(tensor.shape[-1] != query.shape[-1] or tensor.stride(-1) != 1 for tensor in (query, key, value)):
        return False
    if 0 in (query.shape[-2], key.shape[-2]):
        return False
    scores = (*query.shape[:3], key.shape[2])
    return bias is None or (
        bias.dim() in (2, 4)
        and all(given in (1, wanted) for given, wanted in zip(bias.shape[::-1], scores[::-1], strict=False))
    )


def _factor(query: Tensor, scale: float | None) -> float:
    if scale is not None:
        return scale
    return 1.0 / math.sqrt(query.shape[-1]) if query.shape[-1] else math.inf


def _four(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.reshape((1,) * (4 - bias.dim()) + bias.shape)


def _is_empty(*tensors: Tensor) -> bool:
    return any(tensor.numel() == 0 for tensor in tensors)


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten._scaled_dot_product_fused_attention_overrideable.default: attention,
    aten._scaled_dot_product_fused_attention_overrideable_backward.default: attention_backward,
}
