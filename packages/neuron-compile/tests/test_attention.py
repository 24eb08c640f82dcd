"""scaled_dot_product_attention in compiled graphs, and what its backward keeps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as attention

from .helpers import check, check_all, compiled


def heads(*shape: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for _ in range(3)]


DEFINED, KERNEL = 5, 64
"""Queries and keys of which attention is computed as it is defined, and by ATen's kernel."""


@pytest.mark.parametrize("length", [DEFINED, KERNEL], ids=["defined", "kernel"])
def test_attention(length: int) -> None:
    query, key, value = heads(2, 4, length, 8)
    few = query[:, :, : length // 2]
    mask = torch.rand(2, 1, length, length) > 0.4
    mask[0, 0, 2] = False
    bias = torch.randn(length, length)

    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, attn_mask=mask.to(q.device))

    def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, attn_mask=bias.to(q.device), scale=0.2)

    def padded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, attn_mask=mask[:, :, :1].to(q.device))

    def projected(packed: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in packed.chunk(3, dim=-1))
        return attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    cases: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
        "plain": (lambda q, k, v: attention(q, k, v), (query, key, value)),
        "causal": (lambda q, k, v: attention(q, k, v, is_causal=True), (query, key, value)),
        "scaled": (lambda q, k, v: attention(q, k, v, scale=0.3), (query, key, value)),
        "fewer queries": (lambda q, k, v: attention(q, k, v, is_causal=True), (few, key, value)),
        "fewer keys": (lambda q, k, v: attention(k, q, v[:, :, : length // 2], is_causal=True), (few, key, value)),
        "a mask that hides every key of a query": (masked, (query, key, value)),
        "a bias": (biased, (query, key, value)),
        "padding": (padded, (query, key, value)),
        "parts of one projection": (projected, (torch.randn(2, length, 96),)),
        "keys whose sizes lie apart": (
            lambda q, k, v: attention(q, k.transpose(2, 3), v.transpose(2, 3)),
            (query, key.transpose(2, 3).contiguous(), value.transpose(2, 3).contiguous()),
        ),
        "values of another size": (lambda q, k, v: attention(q, k, v[..., :5]), (query, key, value)),
        "queries that share keys": (
            lambda q, k, v: attention(q, k[:, :2], v[:, :2], enable_gqa=True, is_causal=True),
            (query, key, value),
        ),
    }
    check_all(cases, grad=True, rtol=1e-4)


def test_the_gradient_of_a_bias() -> None:
    query, key, value = heads(2, 3, 5, 4)
    check(lambda q, k, v, b: attention(q, k, v, attn_mask=b), query, key, value, torch.randn(1, 3, 5, 5), grad=True)


@pytest.mark.parametrize("length", [DEFINED, KERNEL], ids=["defined", "kernel"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 4e-3)], ids=str)
def test_narrow_floats(dtype: torch.dtype, tolerance: float, length: int) -> None:
    inputs = [tensor.to(dtype) for tensor in heads(2, 3, length, 8)]
    check(lambda q, k, v: attention(q, k, v, is_causal=True), *inputs, grad=True, rtol=tolerance, atol=tolerance)


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


def test_the_result_is_kept_once_for_the_backward_and_the_next_projection() -> None:
    query, key, value = (tensor.to("neuron").requires_grad_() for tensor in heads(1, 2, 64, 4))
    weight = torch.randn(8, 8, device="neuron", requires_grad=True)

    def project(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return attention(q, k, v).transpose(1, 2).flatten(2) @ w

    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        compiled(project)(query, key, value, weight)
    inputs = {tensor.data_ptr() for tensor in (query, key, value, weight)}
    made = {tensor.data_ptr(): tensor.numel() for tensor in kept if tensor.data_ptr() not in inputs}
    assert sorted(made.values()) == [2 * 64, 2 * 64 * 4]  # a number per query, and the result


def apart(batch: int, count: int, length: int, size: int) -> Tensor:
    """Return heads as a projection gives them: those of a token lie side by side."""
    return torch.randn(batch, length, count, size).transpose(1, 2)


ORDERED, APART = torch.randn(2, 4, 6, 8), apart(2, 4, 6, 8)
LAYOUTS: dict[str, tuple[tuple[Tensor, Tensor, Tensor], dict[str, Any]]] = {
    "all in order": ((ORDERED, ORDERED, ORDERED), {}),
    "all of a projection": ((APART, APART, APART), {}),
    "only the query in order": ((ORDERED, APART, APART), {}),
    "only the query of a projection": ((APART, ORDERED, ORDERED), {}),
    "batches inside": ((torch.randn(4, 2, 6, 8).transpose(0, 1), APART, APART), {}),
    "a query whose sizes lie apart": ((torch.randn(2, 4, 8, 6).mT, APART, APART), {}),
    "queries that share keys": ((APART, apart(2, 2, 6, 8), apart(2, 2, 6, 8)), {"enable_gqa": True}),
    "values of another size": ((APART, APART, apart(2, 4, 6, 5)), {}),
    "a mask": ((APART, APART, APART), {"attn_mask": torch.ones(6, 6, dtype=torch.bool).tril()}),
    "a mask of three dimensions": ((APART, APART, APART), {"attn_mask": torch.zeros(4, 6, 6)}),
    "keys of one batch for all": ((APART, apart(1, 4, 6, 8), apart(1, 4, 6, 8)), {}),
    "bfloat16": ((APART.bfloat16(), APART.bfloat16(), APART.bfloat16()), {"is_causal": True}),
    "three dimensions": ((APART[0], APART[0], APART[0]), {}),
}


@pytest.mark.parametrize("case", LAYOUTS)
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_results_are_laid_out_as_in_eager_mode(case: str, grad: bool) -> None:
    """Also while the function is traced: code may branch on strides, and takes views by them."""
    tensors, options = LAYOUTS[case]

    def attend(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
        result = attention(q, k, v, **options)
        return result, torch.tensor(result.stride(), device=result.device)

    expected = attend(*tensors, options)[0]
    for function in (attend, compiled(attend)):
        moved = [tensor.to("neuron").requires_grad_(grad) for tensor in tensors]
        assert [one.stride() for one in moved] == [one.stride() for one in tensors]
        given = {name: one.to("neuron") if isinstance(one, Tensor) else one for name, one in options.items()}
        result, traced = function(*moved, given)
        assert tuple(traced.tolist()) == result.stride() == expected.stride()
        tolerance = 1e-2 if case == "bfloat16" else 1e-5
        torch.testing.assert_close(result.cpu(), expected, rtol=tolerance, atol=tolerance)


def test_views_of_results_are_taken_as_in_eager_mode() -> None:
    def merged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, is_causal=True).transpose(1, 2).view(2, 6, 32)  # a view: heads lie side by side

    check(merged, apart(2, 4, 6, 8), apart(2, 4, 6, 8), apart(2, 4, 6, 8), grad=True)
