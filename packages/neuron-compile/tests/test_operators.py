"""Compiled operators and their gradients equal the CPU's."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from .helpers import check, compiled

ROWS = torch.tensor([1, 3, 0, 2])


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


DIFFERENTIABLE: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "gelu": (F.gelu, (_x(4, 8),)),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (_x(4, 8),)),
    "silu": (F.silu, (_x(4, 8),)),
    "rrelu outside training": (F.rrelu, (_x(4, 8),)),
    "rrelu of one slope": (lambda x: F.rrelu(x, 0.25, 0.25, training=True), (_x(4, 8),)),
    "erf": (torch.erf, (_x(4, 8),)),
    "softmax": (lambda x: x.softmax(-1), (_x(4, 8),)),
    "log_softmax": (lambda x: x.log_softmax(-1), (_x(4, 8),)),
    "logsumexp": (lambda x: x.logsumexp(1), (_x(4, 8),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b), (_x(4, 8), _x(8), _x(8))),
    "weight_norm of rows": (lambda v, g: torch._weight_norm(v, g, 0), (_x(4, 3, 2), _x(4, 1, 1))),
    "weight_norm of columns": (lambda v, g: torch._weight_norm(v, g, 1), (_x(4, 3), _x(1, 3))),
    "layer_norm of two axes": (lambda x, w: F.layer_norm(x, (4, 8), w), (_x(3, 4, 8), _x(4, 8))),
    "layer_norm without weights": (lambda x: F.layer_norm(x, (8,)), (_x(4, 8),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (8,), w), (_x(4, 8), _x(8))),
    "group_norm": (lambda x: F.group_norm(x, 2), (_x(3, 4, 5),)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (_x(4, 8),)),
    "var": (lambda x: x.var(1), (_x(4, 8),)),
    "var of all, population": (lambda x: x.var(correction=0), (_x(4, 8),)),
    "var_mean": (lambda x: torch.var_mean(x, (0, 2), keepdim=True), (_x(3, 4, 5),)),
    "std": (lambda x: x.std(0), (_x(4, 8),)),
    "linear": (F.linear, (_x(4, 8), _x(3, 8), _x(3))),
    "addmm scaled": (lambda a, x, y: torch.addmm(a, x, y, beta=0.5, alpha=2.0), (_x(4, 3), _x(4, 8), _x(8, 3))),
    "addmm without addend": (lambda a, x, y: torch.addmm(a, x, y, beta=0), (_x(4, 3), _x(4, 8), _x(8, 3))),
    "baddbmm": (lambda a, x, y: torch.baddbmm(a, x, y, alpha=-1), (_x(2, 4, 3), _x(2, 4, 8), _x(2, 8, 3))),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q), (_x(2, 2, 8, 4),)),
    "causal attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (_x(2, 2, 8, 4),)),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), (_x(1, 2, 6, 6), _x(3, 2, 3, 3))),
    "where": (lambda x: torch.where(x > 0, x, 0.0), (_x(4, 8),)),
    "masked_fill": (lambda x: x.masked_fill(torch.ones_like(x, dtype=torch.bool).tril(), -1.0), (_x(4, 4),)),
    "cross_entropy": (lambda x: F.cross_entropy(x, ROWS.to(x.device)), (_x(4, 8),)),
    "mse_loss": (lambda x, y: F.mse_loss(x, y), (_x(4, 8), _x(4, 8))),
    "embedding": (lambda w: F.embedding(ROWS.to(w.device), w), (_x(4, 8),)),
    "index": (lambda x: x[ROWS.to(x.device)], (_x(4, 8),)),
    "gather": (lambda x: x.gather(1, ROWS.to(x.device)[:, None]), (_x(4, 8),)),
    "scatter_add": (lambda x: x.scatter_add(1, ROWS.to(x.device)[:, None], x[:, :1]), (_x(4, 8),)),
    "cumsum": (lambda x: x.cumsum(1), (_x(4, 8),)),
    "max": (lambda x: x.max(1)[0], (_x(4, 8),)),
    "topk": (lambda x: x.topk(3)[0], (_x(4, 8),)),
    "cat": (lambda x, y: torch.cat([x, y, x], 1), (_x(4, 8), _x(4, 2))),
    "pad": (lambda x: F.pad(x, (1, 2)), (_x(4, 8),)),
    "transposed output": (lambda x: (x + 1).t(), (_x(4, 8),)),
    "sgn": (torch.sgn, (_x(4, 8),)),
    "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y), (_x(4, 8), _x(3, 8))),
}
OTHERS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "arange": (lambda x: x + torch.arange(8, device=x.device), (_x(4, 8),)),
    "max_pool2d with the default stride": (lambda x: F.max_pool2d(x, 2), (_x(1, 2, 8, 8),)),
    "avg_pool2d with the default stride": (lambda x: F.avg_pool2d(x, 2), (_x(1, 2, 8, 8),)),
    "int64": (lambda i: i * 2 // 3 + 2**40, (ROWS,)),
    "bool": (lambda x: (x > 0) & (x < 1), (_x(4, 8),)),
    "bfloat16 product": (lambda x, y: x @ y, (_x(4, 8).bfloat16(), _x(8, 4).bfloat16())),
    "one_hot": (lambda i: F.one_hot(i, 4), (ROWS,)),
    "argmax": (lambda x: x.argmax(1), (_x(4, 8),)),
    "scalar": (lambda x: x.sum(), (_x(4, 8),)),
    "all of two axes": (lambda x: (x > -9).all((0, 2)), (_x(3, 4, 5),)),
    "all of every axis": (lambda x: torch.all(x, dim=None, keepdim=True), (_x(3, 4),)),
    "all of no axis": (lambda x: torch.all((x > 0).to(torch.uint8), dim=()), (_x(3, 4),)),
    "empty uint8": (lambda x: (x[:, :0] > 0).to(torch.uint8), (_x(4, 3),)),
    "constant": (lambda x: x * torch.tensor([1.0, 2.0, 3.0]).to(x.device), (_x(4, 3),)),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_values_and_gradients(name: str) -> None:
    function, inputs = DIFFERENTIABLE[name]
    check(function, *inputs, grad=True)


@pytest.mark.parametrize("name", OTHERS)
def test_values(name: str) -> None:
    function, inputs = OTHERS[name]
    check(function, *inputs)


@pytest.mark.filterwarnings("ignore::torch_neuronx.errors.Float64Warning")
def test_float64_is_computed_as_float32() -> None:
    x = _x(4, 8).double() * 1e3 + 1e-9

    def function(x: Tensor) -> Tensor:
        return (x.sin() * torch.full((8,), 0.1, dtype=torch.float64, device=x.device)).sum(1)

    result = torch.compile(function, backend="neuron", fullgraph=True)(x.to("neuron")).cpu()
    assert result.dtype == torch.float64
    assert torch.equal(result, result.float().double())
    torch.testing.assert_close(result, (x.float().sin() * 0.1).sum(1).double(), rtol=1e-5, atol=1e-5)


# Copies to the device warn where an earlier test opened it without the variable, and no test has had the warning yet.
@pytest.mark.filterwarnings("ignore::torch_neuronx.errors.Float64Warning")
def test_the_relaxed_emulator_computes_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_EMULATOR_RELAXED", "1")
    x = _x(4, 8).double()
    result = torch.compile(lambda x: x * (1 + 2.0**-40), backend="neuron", fullgraph=True)(x.to("neuron")).cpu()
    assert torch.equal(result, x * (1 + 2.0**-40))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_floats_are_divided_with_the_remainder_of_eager_mode(dtype: torch.dtype) -> None:
    """1 // 0.1 is 9: the rest is taken exactly, and the quotient from it."""
    pairs = [(1, 0.1), (-1, 0.1), (6, 0.1), (5, 0), (-5, 0), (0.3, 0.1), (-0.0, 2), (7.5, math.inf), (-7.5, math.inf)]
    pairs += [(math.inf, 2), (-math.inf, -3), (math.nan, 1), (2.0**14, 3), (-7.5, 2)]
    x, y = (torch.tensor(side, dtype=dtype) for side in zip(*pairs, strict=True))

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        by_tensor = [x // y, x % y, torch.fmod(x, y), 2 // y, torch.div(x, y, rounding_mode="floor")]
        return [*by_tensor, x // 0.1, x // -3, x % 0.1, torch.fmod(x, 0.1)]

    for one, other in zip(compiled(function)(x.to("neuron"), y.to("neuron")), function(x, y), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0, equal_nan=True)
