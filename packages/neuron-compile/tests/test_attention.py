"""scaled_dot_product_attention in compiled graphs, and what its backward keeps."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as attention

from .helpers import check, compiled


def heads(*shape: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for _ in range(3)]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=["plain", "causal", "scaled"])
def test_attention(options: dict[str, Any]) -> None:
    check(lambda q, k, v: attention(q, k, v, **options), *heads(2, 3, 5, 4), grad=True)


def test_fewer_queries_than_keys() -> None:
    query, key, value = heads(2, 3, 6, 4)
    check(lambda q, k, v: attention(q, k, v, is_causal=True), query[:, :, :4], key, value, grad=True)


def test_a_mask_that_hides_every_key_of_a_query() -> None:
    query, key, value = heads(2, 3, 5, 4)
    mask = torch.rand(2, 1, 5, 5) > 0.4
    mask[0, 0, 2] = False

    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, attn_mask=mask.to(q.device))

    check(masked, query, key, value, grad=True)


def test_the_gradient_of_a_bias() -> None:
    query, key, value = heads(2, 3, 5, 4)
    check(lambda q, k, v, b: attention(q, k, v, attn_mask=b), query, key, value, torch.randn(1, 3, 5, 5), grad=True)


def test_queries_that_share_keys() -> None:
    query, (key, value, _) = heads(2, 6, 5, 4)[0], heads(2, 2, 5, 4)
    check(lambda q, k, v: attention(q, k, v, enable_gqa=True, is_causal=True), query, key, value, grad=True)


def test_bfloat16() -> None:
    inputs = [tensor.bfloat16() for tensor in heads(2, 3, 16, 8)]
    check(lambda q, k, v: attention(q, k, v, is_causal=True), *inputs, grad=True, rtol=2e-2, atol=2e-2)


def test_three_dimensions() -> None:
    check(lambda q, k, v: attention(q, k, v), *heads(3, 5, 4), grad=True)


# The CPU's own attention, which is compared with, has no rule for batches.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_transforms_of_functions() -> None:
    check(torch.vmap(lambda q, k, v: attention(q, k, v)), *heads(2, 1, 3, 5, 4))


def test_the_backward_keeps_no_weights() -> None:
    query, key, value = (tensor.to("neuron").requires_grad_() for tensor in heads(1, 2, 64, 4))
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        compiled(lambda q, k, v: attention(q, k, v))(query, key, value)
    assert kept
    assert max(tensor.numel() for tensor in kept) <= query.numel()
