"""Attention over sequences that are cut over the ranks of a mesh, by rings of keys and values.

:func:`context_parallel` is ``torch.distributed.tensor.experimental.context_parallel`` for meshes of device ``neuron``.
PyTorch's own takes over the operators that attention becomes on CUDA, by handlers of DTensor. On this device attention
on tensors that are not plain stays one operator only where that is asked for, and then it is the overrideable one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Shard
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_neuronx_dist.attention import _compat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed.device_mesh import DeviceMesh

_SEQUENCE = 2
"""The dimension of (batch, heads, sequence, features) that is cut."""

_aten = torch.ops.aten


@contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: list[torch.Tensor] | None = None,
    buffer_seq_dims: list[int] | None = None,
    no_restore_buffers: set[torch.Tensor] | None = None,
) -> Iterator[None]:
    """Cut ``buffers`` along their sequences; attention in the block sees the sequences of all ranks.

    Arguments are those of PyTorch's, and so is the order in which a rank holds its part: PyTorch deals out the head and
    the tail of the sequence, so that causal attention takes all ranks as long. ``scaled_dot_product_attention`` on four
    dimensions may be causal or see the whole sequence; with a mask or dropout it raises.
    """
    _register()
    cut = _compat.context_parallel(
        mesh, buffers=buffers, buffer_seq_dims=buffer_seq_dims, no_restore_buffers=no_restore_buffers
    )
    with cut, sdpa_kernel(SDPBackend.OVERRIDEABLE):
        yield


@cache
def _register() -> None:
    _compat.handlers[_aten._scaled_dot_product_fused_attention_overrideable.default] = _forward
    _compat.handlers[_aten._scaled_dot_product_fused_attention_overrideable_backward.default] = _backward


def _forward(op: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Handle attention on DTensors: this rank's queries meet the keys and values of each rank in turn."""
    query, key, value, *given = arguments
    bias, dropout, causal = (*given, *(None, 0.0, False)[len(given) :])[:3]
    if bias is not None or dropout:
        raise NotImplementedError(
            "Attention over a sequence that is cut over ranks has a mask or dropout. Use is_causal=True or False "
            "without them."
        )
    with _order(causal):
        output, logsumexp = _compat.ring_attention(
            query.device_mesh.get_group(),
            _SEQUENCE,
            _aten._scaled_dot_product_flash_attention_for_cpu,
            **_shared(query, key, value, causal, options),
        )
    # What the kernels of other devices return beside these is for their gradients.
    return _whole(output, query), _whole(logsumexp, query), None, None, 0, 0, None, None, None


def _backward(op: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Handle the gradient of attention on DTensors."""
    gradient, query, key, value, _, _, output, logsumexp, _, _, _, _, _, causal, *_ = arguments
    with _order(causal):
        gradients = _compat.ring_attention_backward(
            query.device_mesh.get_group(),
            _SEQUENCE,
            _aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
            grad_out=_local(gradient).contiguous(),
            grad_out_name="grad_out",
            out=_local(output),
            logsumexp=_local(logsumexp),
            **_shared(query, key, value, causal, options),
        )
    return (*(_whole(part, query) for part in gradients), None)


def _order(causal: bool) -> AbstractContextManager[None]:
    """Whoever sees the whole sequence sees the same in any order; rings that know of one insist on causal attention."""
    return nullcontext() if causal else _compat.any_order()


def _shared(query: DTensor, key: DTensor, value: DTensor, causal: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Return what the kernel and that of its gradient are both given."""
    return {
        "query": _local(query),
        "key": _local(key),
        "value": _local(value),
        "is_causal": causal,
        "dropout_p": 0.0,
        "scale": options.get("scale"),
    }


def _local(tensor: DTensor) -> torch.Tensor:
    return tensor.redistribute(placements=[Shard(_SEQUENCE)]).to_local()


def _whole(part: torch.Tensor, like: DTensor) -> DTensor:
    return DTensor.from_local(part, like.device_mesh, [Shard(_SEQUENCE)], run_check=False)
