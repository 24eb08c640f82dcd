"""Results and what is written into lie in memory as in eager mode: a view of them is the view that it takes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from .helpers import check, check_all, compiled

_ROWS = torch.tensor([2, 0])
_MASK = torch.tensor([[True, False, True], [False, True, True], [False, False, True], [True, True, False]])


def _rows(like: Tensor) -> Tensor:
    return _ROWS.to(like.device)


def _mask(like: Tensor) -> Tensor:
    return _MASK.to(like.device)


WRITES: dict[str, Callable[[Tensor], object]] = {
    "index_fill": lambda y: y.index_fill_(0, _rows(y), 2.0),
    "index_fill along columns": lambda y: y.index_fill_(1, _rows(y), 2.0),
    "index_copy": lambda y: y.index_copy_(0, _rows(y), torch.ones(2, 3, device=y.device)),
    "index_add": lambda y: y.index_add_(1, _rows(y), torch.ones(4, 2, device=y.device)),
    "index_reduce": lambda y: y.index_reduce_(0, _rows(y), torch.ones(2, 3, device=y.device), "amax"),
    "index_put": lambda y: y.index_put_((_rows(y), _rows(y)), torch.ones(2, device=y.device)),
    "index_put of columns": lambda y: y.__setitem__((slice(None), _rows(y)), torch.ones(2, device=y.device)),
    "scatter": lambda y: y.scatter_(0, _rows(y)[None], 1.0),
    "scatter_add": lambda y: y.scatter_add_(1, _rows(y)[:, None], torch.ones(2, 1, device=y.device)),
    "scatter_reduce": lambda y: y.scatter_reduce_(1, _rows(y)[:, None], torch.ones(2, 1, device=y.device), "prod"),
    "masked_scatter": lambda y: y.masked_scatter_(_mask(y), torch.ones(12, device=y.device)),
    "masked_fill": lambda y: y.masked_fill_(_mask(y), 1.0),
    "put": lambda y: y.put_(_rows(y), torch.ones(2, device=y.device)),
    "fill_diagonal": lambda y: y.fill_diagonal_(1.0),
    "cumsum": lambda y: y.cumsum_(1),
    "cumprod": lambda y: y.cumprod_(0),
    "triu": lambda y: y.triu_(),
    "renorm": lambda y: y.renorm_(2, 1, 0.5),
    "clamp": lambda y: y.clamp_(-0.5, 0.5),
    "remainder": lambda y: y.remainder_(0.3),
    "lerp": lambda y: y.lerp_(torch.ones(4, 3, device=y.device), 0.5),
    "addcmul": lambda y: y.addcmul_(torch.ones(4, 3, device=y.device), y),
    "addmm": lambda y: y.addmm_(torch.ones(4, 2, device=y.device), torch.ones(2, 3, device=y.device)),
    "copy": lambda y: y.copy_(torch.ones(4, 3, device=y.device)),
    "of rows": lambda y: y[1:3].zero_(),
    "of every other column": lambda y: y[:, ::2].fill_(1.0),
    "of a column": lambda y: y[:, 1].mul_(2.0),
    "of the diagonal": lambda y: y.diagonal().add_(1.0),
    "of a view with strides": lambda y: y.as_strided((2, 2), (1, 4)).add_(1.0),
}


def _written(write: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        y = x * 1.5
        write(y)
        return y.t().reshape(-1)  # a view: of `y` the columns lie one after the other

    return call


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
def test_views_of_what_was_written_into() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).t()
    check_all({name: (_written(write), (x,)) for name, write in WRITES.items()})


VIEWED: dict[str, Callable[[Tensor], Tensor]] = {
    "index": lambda x: x[:, _rows(x)],
    "index of the last dimension": lambda x: x[..., _rows(x)],
    "index_select": lambda x: x.index_select(1, _rows(x)),
    "topk": lambda x: x.topk(2, 1).values,
    "kthvalue": lambda x: x.kthvalue(1, 1).values,
    "cross": lambda x: torch.cross(x, x + 1, dim=1),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
    "fold": lambda x: torch.nn.functional.fold(torch.nn.functional.unfold(x, 2), (4, 3), 2),
}


def _flat(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x).view(-1)


def test_views_of_results() -> None:
    """Of contiguous tensors operators make contiguous ones, of which `view` takes any view."""
    x = torch.randn(2, 3, 4, 3, generator=torch.Generator().manual_seed(0))
    check_all({name: (_flat(function), (x,)) for name, function in VIEWED.items()}, grad=True)


def test_a_view_across_a_dimension_of_one_element() -> None:
    """Of one element the stride is anything: it does not keep the dimensions around it from being one."""
    x = torch.randn(5, 1, 5, generator=torch.Generator().manual_seed(0)).transpose(-1, -2)

    def fill(x: Tensor) -> Tensor:
        y = x * 1.5
        y.index_fill_(-2, _rows(y), 1.0)
        return y.reshape(-1)

    check_all({"index_fill": (fill, (x,))})


def test_strides_of_a_view() -> None:
    """`as_strided` counts in the memory of the tensor behind a view; what a graph is not given is not made up."""

    def shown(x: Tensor) -> Tensor:
        return (x * 1.5)[1:].as_strided((2, 2), (1, 2), 4)

    check_all({"inside": (shown, (torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),))})

    def outside(x: Tensor) -> Tensor:
        return x.as_strided((2, 2), (1, 2)) * 2

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    moved = x.to("neuron")
    function = torch.compile(outside, backend="neuron")
    assert torch.equal(function(moved[:, ::2]).cpu(), outside(x[:, ::2]))


GAPPED: dict[str, Callable[[Tensor], Tensor]] = {
    "as_strided": lambda x: x.as_strided((3, 4), (9, 2), 9),
    "as_strided with elements shown twice": lambda x: x.as_strided((3, 3), (1, 2)),
    "as_strided of a view": lambda x: x[1:].t().as_strided((2, 3), (10, 3), 2),
    "as_strided of an expanded tensor": lambda x: x[:, :1].expand(10, 10).as_strided((2, 3), (0, 3)),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "diagonal": lambda x: x.diagonal(1),
    "diagonal of a transposed tensor": lambda x: x.view(2, 5, 5, 2).transpose(0, 3).diagonal(dim1=1, dim2=2),
}


@pytest.mark.parametrize("grad", [False, True])
def test_a_copy_of_a_view_with_gaps_keeps_its_elements(grad: bool) -> None:
    """Where eager mode copies to reshape, what is written into the view afterwards does not show."""

    def written_later(view: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def call(x: Tensor) -> Tensor:
            y = x * 2
            flat = view(y).flatten()
            y.mul_(3)
            return flat

        return call

    x = torch.randn(10, 10, generator=torch.Generator().manual_seed(0))
    check_all({name: (written_later(view), (x,)) for name, view in GAPPED.items()}, grad=grad)


LAID_OUT: dict[str, Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = {
    "of a transposed tensor": lambda x: x.transpose(1, 2) * 2,
    "channels last": lambda x: (x + 1).contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: (x * 2).transpose(0, 3),
    "a product of heads": lambda x: (x @ x.mT).permute(0, 2, 1, 3),
    "contiguous": lambda x: x.transpose(1, 2).contiguous() * 2,
    "complex": lambda x: torch.complex(x, x).transpose(1, 2) * 2,
    "float64": lambda x: x.double().transpose(1, 2) * 2,
    "a tensor and its view": lambda x: (lambda y: (y, y.transpose(1, 2)[0]))(x.mT * 2),
    "a view by strides": lambda x: (lambda y: (y, y.as_strided((2, 3), (3, 1))))(x.mT * 2),
    "a view as one dimension": lambda x: (lambda y: (y, y.mT.view(-1)))(x.mT * 2),
}


@pytest.mark.filterwarnings("ignore::torch_neuronx.errors.Float64Warning")
@pytest.mark.parametrize("grad", [False, True])
def test_results_lie_in_memory_as_in_eager_mode(grad: bool) -> None:
    def of_all(x: Tensor) -> list[Tensor | tuple[Tensor, ...]]:
        return [function(x) for function in LAID_OUT.values()]

    x = torch.randn(2, 3, 4, 3, generator=torch.Generator().manual_seed(0))
    eager = of_all(x.clone().requires_grad_(grad))
    graph = torch.compile(of_all, backend="neuron", fullgraph=True)(x.to("neuron").requires_grad_(grad))
    for name, ones, others in zip(LAID_OUT, eager, graph, strict=True):
        pairs = [(ones, others)] if isinstance(ones, Tensor) else list(zip(ones, others, strict=True))
        for one, other in pairs:
            assert isinstance(one, Tensor)
            assert isinstance(other, Tensor)
            assert other.stride() == one.stride(), name
            torch.testing.assert_close(other.cpu(), one, msg=lambda text, name=name: f"{name}: {text}")


def test_a_result_that_was_brought_to_the_cpu_lies_there_as_in_eager_mode() -> None:
    def brought(x: Tensor) -> Tensor:
        return (x * 2).cpu()

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).t()
    result = torch.compile(brought, backend="neuron")(x.to("neuron"))
    assert (result.device.type, result.stride()) == ("cpu", (1, 4))
    assert torch.equal(result, x * 2)


def test_no_result_is_the_callers_tensor() -> None:
    """Of one element along its dimension a cumulative sum is what it is of."""
    x = torch.randn(2, 1, 3, device="neuron")
    calls: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.cumsum(1),
        lambda x: x.cumprod(1),
        lambda x: x.cummax(1).values,
        lambda x: x.cummin(1).values,
        lambda x: x.logcumsumexp(1),
        lambda x: x.roll(0, 0),
        lambda x: x.sort(1).values,
        lambda x: x.clone(),
    ]
    for result in torch.compile(lambda x: [call(x) for call in calls], backend="neuron", fullgraph=True)(x):
        assert result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        assert torch.equal(result, x)


def _filter(x: Tensor, *shape: int) -> Tensor:
    return torch.ones(shape, device=x.device)


ORDERED: dict[str, Callable[[Tensor], Tensor]] = {
    "convolution": lambda x: F.conv2d(x, _filter(x, 5, 4, 3, 3)),
    "convolution with a bias": lambda x: F.conv2d(x, _filter(x, 5, 4, 3, 3), _filter(x, 5), stride=2, padding=1),
    "convolution of groups": lambda x: F.conv2d(x, _filter(x, 4, 1, 3, 3), groups=4),
    "transposed convolution": lambda x: F.conv_transpose2d(x, _filter(x, 4, 3, 2, 2)),
    "activation of a convolution": lambda x: F.conv2d(x, _filter(x, 5, 4, 3, 3)).relu(),
    "batch normalization of a convolution": lambda x: F.batch_norm(
        F.conv2d(x, _filter(x, 5, 4, 3, 3)), None, None, training=True
    ),
    "pooling of a convolution": lambda x: F.max_pool2d(F.conv2d(x, _filter(x, 5, 4, 3, 3)), 2),
    "average pooling": lambda x: F.avg_pool2d(x, 2),
    "adaptive pooling": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive maximum pooling": lambda x: F.adaptive_max_pool2d(x, 3),
    "nearest neighbours": lambda x: F.interpolate(x, scale_factor=2),
    "grid_sample": lambda x: F.grid_sample(x, torch.zeros(2, 3, 3, 2, device=x.device), align_corners=False),
    "index": lambda x: x[_rows(x) // 2],
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(2, 1).values,
    "to a memory format": lambda x: x.to(memory_format=torch.channels_last),
    "to a dtype and a memory format": lambda x: x.to(torch.float16, memory_format=torch.channels_last),
    "zeros_like in a memory format": lambda x: torch.zeros_like(x, memory_format=torch.channels_last),
    "softmax": lambda x: x.softmax(1),
    "gelu": F.gelu,
}
ORDERS = {
    "contiguous": torch.randn(2, 4, 6, 6),
    "channels last": torch.randn(2, 6, 6, 4).permute(0, 3, 1, 2),
    "transposed": torch.randn(4, 2, 6, 6).transpose(0, 1),
}


def _strides(tensor: Tensor) -> list[int]:
    """Return the strides that decide where elements are."""
    return [step for step, extent in zip(tensor.stride(), tensor.shape, strict=True) if extent > 1]


@pytest.mark.parametrize("order", ORDERS)
def test_results_have_the_order_that_operators_give_them(order: str) -> None:
    """Also while they are traced: code may branch on strides."""

    def all_of_them(x: Tensor) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
        results = {name: function(x) for name, function in ORDERED.items()}
        return results, {name: _strides(result) for name, result in results.items()}

    x = ORDERS[order].to("neuron")
    eager, seen = all_of_them(x)
    results, traced = compiled(all_of_them)(x)
    assert traced == seen
    assert {name: _strides(result) for name, result in results.items()} == seen
    for name, result in results.items():
        torch.testing.assert_close(result, eager[name], msg=lambda text, name=name: f"{name}: {text}")


def test_gradients_of_channels_last_convolutions() -> None:
    x, weight = ORDERS["channels last"], torch.randn(5, 4, 3, 3).to(memory_format=torch.channels_last)

    def rows(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x, weight).permute(0, 2, 3, 1).view(-1, 5)  # a view: channels lie side by side

    check(rows, x, weight, grad=True, atol=1e-4)
    volumes = torch.randn(2, 3, 5, 6, 7).to(memory_format=torch.channels_last_3d)
    check(
        lambda x, w: F.conv3d(x, w).permute(0, 2, 3, 4, 1).view(-1, 4),
        volumes,
        torch.randn(4, 3, 3, 3, 3),
        grad=True,
        atol=1e-4,
    )
