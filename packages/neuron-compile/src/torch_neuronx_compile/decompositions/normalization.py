"""Variance and layer norm in float32: torch-mlir computes a variance in float64."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch._ops import OpOverload

from torch_neuronx_compile import normalization_ops
from torch_neuronx_compile.decompositions.narrow_floats import widened

aten = torch.ops.aten


def var_mean(
    self: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Decompose into the mean, and the mean of the squared distances from it; narrow floats are widened first."""
    dims = list(dim) if dim else list(range(self.dim()))
    count = math.prod(self.shape[axis] for axis in dims)
    wide = widened(self)
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    degrees = max(count - (1 if correction is None else correction), 0)
    squares = (centred * centred).sum(dims, keepdim=keepdim)
    variance = squares / degrees if degrees else squares * math.inf
    return variance.to(self.dtype), (mean if keepdim else wide.mean(dims)).to(self.dtype)


def var(
    self: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """Return the first half of :func:`var_mean`."""
    return var_mean(self, dim, correction=correction, keepdim=keepdim)[0]


def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose; statistics are float32 where the input is narrower, as on the CPU and on CUDA."""
    compute = normalization_ops.layer_norm if _is_plain(input) else normalization_ops.normalize
    return compute(input, weight, bias, len(normalized_shape), eps)


def native_layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Decompose; gradients that the mask leaves out are ``None``."""
    compute = normalization_ops.layer_norm_backward if _is_plain(input) else normalization_ops.differentiate
    grad_input, grad_weight, grad_bias = compute(grad_out, input, mean, rstd, weight, len(normalized_shape))
    return (
        grad_input if output_mask[0] else None,
        grad_weight if output_mask[1] and weight is not None else None,
        grad_bias.to(bias.dtype) if output_mask[2] and bias is not None else None,
    )


def _is_plain(input: Tensor) -> bool:
    return input.dtype in (torch.float32, torch.bfloat16, torch.float16) and input.numel() > 0


def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Decompose the gradient of ``w = v * (g / norm(v))``, with the norm over all dimensions but ``dim``."""
    others = [axis for axis in range(saved_v.dim()) if axis != dim % saved_v.dim()]
    along = (grad_w * saved_v).sum(others, keepdim=True) / saved_norms
    grad_v = saved_g / saved_norms * (grad_w - saved_v * (along / saved_norms))
    return grad_v.to(saved_v.dtype), along.to(saved_g.dtype)


_BATCH_NORMS = (
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit_no_training.default,
    aten._batch_norm_with_update.default,
    aten._batch_norm_with_update_functional.default,
    aten._batch_norm_no_update.default,
    aten.native_batch_norm_backward.default,
    aten.batch_norm_backward.default,
)


def _batch_norms() -> dict[OpOverload, Callable[..., Any]]:
    """Return torch's decompositions, with the results of evaluation as the CPU gives them: no saved statistics."""
    found = {op: rule for op, rule in get_decompositions(_BATCH_NORMS).items() if isinstance(op, OpOverload)}
    evaluated: dict[OpOverload, Callable[..., Any]] = {
        aten.native_batch_norm.default: _unsaved(found[aten.native_batch_norm.default], training=5),
        aten._native_batch_norm_legit.default: _unsaved(found[aten._native_batch_norm_legit.default], training=5),
        aten._native_batch_norm_legit_functional.default: _unsaved(
            found[aten._native_batch_norm_legit_functional.default], training=5
        ),
        aten._native_batch_norm_legit_no_training.default: _unsaved(
            found[aten._native_batch_norm_legit_no_training.default], training=None
        ),
    }
    return {**found, **evaluated}


def _unsaved(function: Callable[..., Any], training: int | None) -> Callable[..., Any]:
    def batch_norm(*arguments: Any, **named: Any) -> tuple[Tensor, ...]:
        """Decompose as torch does, without statistics that no gradient needs."""
        output, mean, rstd, *statistics = function(*arguments, **named)
        if training is None or not arguments[training]:
            mean, rstd = mean.new_zeros([0]), rstd.new_zeros([0])
        return output, mean, rstd, *statistics

    return batch_norm


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    **_batch_norms(),
    aten.var_mean.correction: var_mean,
    aten.var.correction: var,
    aten.native_layer_norm.default: native_layer_norm,
    aten.native_layer_norm_backward.default: native_layer_norm_backward,
    aten._weight_norm_interface_backward.default: weight_norm_backward,
}
