"""Lays results out as operators do: a program takes views of them.

AOT Autograd makes a function of a write in place, and the name that was written to stands for its result from then on,
with the strides that the tensor had: by these a later `reshape` is a view or a copy. A decomposition that gives the
elements in another order would have it take a view that there is not. So would `view` of any other result: of
contiguous tensors operators make contiguous ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile._compat import CANNOT_BE_FAKED, untraced
from torch_neuronx_compile.memory_order import in_memory, inverse, is_dense, last_element

_SCATTERS = frozenset(
    {"aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter", "aten::as_strided_scatter"}
)
"""What a write into a view is for the tensor behind it."""

_LAID_OUT = frozenset({torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default})
"""Whose decompositions lay out their results: it stands for what is laid out in two ways."""


def keeping_order(op: OpOverload, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Return the decomposition of ``op``, with results laid out as ``op`` does.

    What stands for a write has the order of its first argument. Other results are contiguous where all arguments are
    and no memory format is asked for; else they have the order that ``op`` gives to fake tensors, as Dynamo has seen
    it. No result is an argument: the program would return its caller's tensor.
    """
    if any(result.alias_info is not None for result in op._schema.returns):  # a view, or what was written into
        return decomposition
    writes = _stands_for_a_write(op)

    @wraps(decomposition)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = list(_strided((*args, *kwargs.values())))
        result = _apart(decomposition(*args, **kwargs), given)
        if writes and isinstance(args[0], Tensor) and isinstance(result, Tensor) and args[0].shape == result.shape:
            return _in_order_of(args[0], result)
        if kwargs.get("memory_format") is None and all(tensor.is_contiguous() for tensor in given):
            return _contiguous(result)
        return result if op in _LAID_OUT else _in_orders_of(_described(op, args, kwargs), result)

    return call


def _described(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what ``op`` itself gives of fake tensors, ``None`` where it cannot be said."""
    try:
        with untraced():
            return op(*args, **kwargs)
    except CANNOT_BE_FAKED:
        return None


def _in_orders_of(described: Any, result: Any) -> Any:
    """Lay out ``result``, which may be several, as ``described``."""
    if isinstance(result, Tensor) and isinstance(described, Tensor) and described.shape == result.shape:
        return _in_order_of(described, result)
    if type(result) in (list, tuple) and type(described) in (list, tuple) and len(described) == len(result):
        return type(result)(map(_in_orders_of, described, result))
    return result


def _strided(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            if value.layout is torch.strided:
                yield value
        elif isinstance(value, list | tuple):
            yield from _strided(value)


def _apart(result: Any, given: Sequence[Tensor]) -> Any:
    if isinstance(result, Tensor):
        return result.clone() if any(result is tensor for tensor in given) else result
    if type(result) in (list, tuple):
        return type(result)(_apart(one, given) for one in result)
    return result


def _contiguous(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.contiguous() if result.layout is torch.strided else result
    if type(result) in (list, tuple):
        return type(result)(map(_contiguous, result))
    return result


def _stands_for_a_write(op: OpOverload) -> bool:
    namespace, _, name = op._schema.name.partition("::")
    if op._schema.name in _SCATTERS:
        return True
    in_place = getattr(getattr(torch.ops, namespace), f"{name}_", None)
    return in_place is not None and op._overloadname in in_place.overloads()


def _in_order_of(written: Tensor, result: Tensor) -> Tensor:
    return laid_out(result, written.stride()) if written.layout is torch.strided else result


def laid_out(tensor: Tensor, strides: Sequence[int]) -> Tensor:
    """Return ``tensor`` densely in memory, its dimensions in the order that ``strides`` have."""
    if tensor.numel() < 2 or 0 in strides:
        return tensor
    order = in_memory(strides)
    permuted = tensor.permute(order)
    return tensor if permuted.is_contiguous() else permuted.contiguous().permute(inverse(order))


def elements(
    tensor: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> tuple[list[int], Tensor] | None:
    """Return the elements that `as_strided` shows: an order of dimensions, and positions in ``tensor`` so permuted.

    ``None`` if it may show memory outside ``tensor``, which no graph is given.
    """
    first = 0 if storage_offset is None else storage_offset - int(tensor.storage_offset())
    last = last_element(size, stride, first)
    if 0 not in size and not (is_dense(tensor) and first >= 0 and last < tensor.numel()):
        return None
    place = torch.full((), first, dtype=torch.int64, device=tensor.device)
    for extent, step in zip(size, stride, strict=True):
        place = place[..., None] + torch.arange(extent, dtype=torch.int64, device=tensor.device) * step
    return in_memory(tensor.stride()), place
