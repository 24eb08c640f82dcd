"""Indexing, scattering, sorting, scans and what is made of them equal the CPU's, gradients included."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from .helpers import check_all, first_name, groups


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


INDEX = torch.tensor([[1, -1, 0], [2, 0, 1]])
ROWS = torch.tensor([2, 0, 2, 1])
MASK = torch.tensor([[True, False, True], [False, True, True], [False, False, True], [True, True, False]])
DIFFERENTIABLE: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "index of two axes apart": (lambda x: x[INDEX.to(x.device), :, INDEX.to(x.device)], (_x(3, 2, 4),)),
    "put, accumulated": (
        lambda x, v: x.index_put((ROWS.to(x.device),), v, accumulate=True),
        (_x(3, 5), _x(4, 5)),
    ),
    "put by a mask": (lambda x: x.index_put((MASK.to(x.device),), torch.tensor(2.0, device=x.device)), (_x(4, 3),)),
    "put at a scalar": (
        lambda x, v: x.scatter(0, torch.zeros((), dtype=torch.int64, device=x.device), v),
        (_x(), _x()),
    ),
    "scattered mean": (
        lambda x, s: x.scatter_reduce(0, INDEX.to(x.device).abs(), s, "mean", include_self=False),
        (_x(3, 3), _x(2, 3)),
    ),
    "scattered maximum": (lambda x, s: x.scatter_reduce(0, INDEX.to(x.device).abs(), s, "amax"), (_x(3, 3), _x(2, 3))),
    "index_reduce": (lambda x, s: x.index_reduce(0, ROWS.to(x.device), s, "prod"), (_x(3, 5), _x(4, 5))),
    "take": (lambda x: x.take(INDEX.to(x.device)), (_x(3, 4),)),
    "masked_scatter": (lambda x, s: x.masked_scatter(MASK.to(x.device), s), (_x(4, 3), _x(9))),
    "replicated padding": (lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"), (_x(1, 2, 3, 4),)),
    "slice with a step": (lambda x, s: x.slice_scatter(s, 1, 1, 6, 2), (_x(2, 7), _x(2, 3))),
    "diagonal": (lambda x, s: x.diagonal_scatter(s, 1), (_x(3, 4), _x(3))),
    "unfold": (lambda x: x.unfold(1, 3, 2), (_x(2, 7),)),
    "embedding bag, mean": (
        lambda w: F.embedding_bag(ROWS.to(w.device), w, torch.tensor([0, 0, 3], device=w.device)),
        (_x(3, 5),),
    ),
    "embedding bag, maximum": (
        lambda w: F.embedding_bag(ROWS.to(w.device), w, torch.tensor([0, 3], device=w.device), mode="max"),
        (_x(3, 5),),
    ),
    "sort": (lambda x: x.sort(0, descending=True), (_x(4, 5),)),
    "kthvalue": (lambda x: x.kthvalue(2, 1), (_x(4, 5),)),
    "median": (lambda x: x.median(1), (_x(4, 6),)),
    "cumprod": (lambda x: x.cumprod(1), (_x(3, 7),)),
    "cumprod with zeros": (lambda x: x.cumprod(1), (torch.tensor([[2.0, 0.0, 3.0, 0.0], [1.0, 2.0, 0.0, 4.0]]),)),
    "cummax": (lambda x: x.cummax(1), (_x(3, 7),)),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), (_x(7, 3),)),
    "cdist": (lambda x, y: torch.cdist(x, y, p=3.0), (_x(4, 3), _x(5, 3))),
    "cdist, maximum": (lambda x, y: torch.cdist(x, y, p=float("inf")), (_x(4, 3), _x(5, 3))),
    "segments": (
        lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([2, 0, 3], device=x.device)),
        (_x(5, 2),),
    ),
    "sum of a scalar": (lambda x: x.sum(0), (_x(),)),
}
SORTED = torch.tensor([0.0, 1.0, 1.0, 2.0, 5.0])
UNORDERED = torch.tensor([[0.0, 1.0, 2.0, float("nan"), float("nan")], [float("nan")] * 3 + [1.0, 2.0]])
SOUGHT = torch.tensor([[-1.0, 1.0, 2.0, 3.0, float("inf"), float("nan")]]).repeat(2, 1)
VALUES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "sort with NaN": (lambda x: x.sort(), (torch.tensor([2.0, float("nan"), -1.0, float("nan"), 2.0]),)),
    "sort of truth values": (lambda x: x.sort(stable=True), (MASK,)),
    "median with NaN": (lambda x: x.median(0), (torch.tensor([2.0, float("nan"), -1.0]),)),
    "median of no truth values": (lambda x: x.median(), (torch.zeros(0, dtype=torch.bool),)),
    "median of nothing": (lambda x: (x.median(), x.long().median()), (torch.zeros(0),)),
    "nanmedian": (lambda x: x.nanmedian(), (torch.tensor([2.0, float("nan"), -1.0, 4.0, 3.0]),)),
    "mode": (lambda x: x.mode(1), (torch.tensor([[3, 1, 3, 1, 2], [5, 4, 4, 4, 5]]),)),
    "searchsorted": (lambda s, v: torch.searchsorted(s, v, right=True), (SORTED, torch.tensor([-1.0, 1.0, 9.0]))),
    "searchsorted among NaN, from the left": (torch.searchsorted, (UNORDERED, SOUGHT)),
    "searchsorted among NaN, from the right": (
        lambda s, v: torch.searchsorted(s, v, right=True),
        (UNORDERED, SOUGHT),
    ),
    "bucketize": (lambda v, s: torch.bucketize(v, s), (torch.tensor([-1.0, 1.0, 9.0]), SORTED)),
    "cummin with NaN": (lambda x: x.cummin(0), (torch.tensor([2.0, 1.0, float("nan"), 1.0]),)),
    "cumsum of integers": (lambda x: x.cumsum(0), (torch.arange(9, dtype=torch.int32),)),
    "histc": (lambda x: x.histc(4, -2, 2), (_x(50),)),
    "histc of equal numbers": (lambda x: x.histc(3), (torch.full((4,), 3.0),)),
    "histogram of equal numbers": (lambda x: torch.histogram(x, 2), (torch.full((4,), 3.0),)),
    "histogram of nothing": (lambda x: torch.histogram(x, 2), (torch.zeros(0),)),
    "histogram in an empty range": (lambda x: torch.histogram(x, 2, range=(1.5, 1.5)), (SORTED,)),
    "integers put": (lambda x: x.index_add(0, ROWS.to(x.device), x[:4] * 2), (torch.arange(12).reshape(6, 2),)),
    "extremes of truth values": (lambda x: (*x.max(1), *x.min(0)), (MASK,)),
    "extremes with NaN twice": (
        lambda x: (*x.max(1), *x.min(0), *x.max(0, keepdim=True)),
        (torch.tensor([[1.0, float("nan"), 2.0, float("nan")], [3.0, float("nan"), 3.0, 0.0]]),),
    ),
    "nothing": (lambda x: x[:, :0].sort(1)[0].cumsum(1), (_x(3, 2),)),
    "nonzero_static": (lambda x: torch.nonzero_static(x, size=8), (MASK,)),
}


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("cases", groups(DIFFERENTIABLE, 9), ids=first_name)
def test_values_and_gradients(cases: dict[str, Any]) -> None:
    check_all(cases, grad=True, rtol=1e-4, atol=1e-4)


def test_values() -> None:
    check_all(VALUES)
