"""Layer norm as StableHLO composites. Runs in the worker."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.worker.builders import reduced, scaled, spread, widened
from torch_neuronx_compile.worker.composites import composite
from torch_neuronx_compile.worker.constants import splat

FORWARD, BACKWARD = "neuron.layer_norm", "neuron.layer_norm_backward"
"""Names of the composites. Operands: the input and, where there are such, weight and bias; of the backward the
gradient, the input, the forward's statistics and maybe the weight. Attributes: ``axes``, how many of the last ones are
normalized over; of the forward also ``eps``, and ``weight`` and ``bias``, whether there are such."""


def layer_norm(call: Any, axes: int, eps: float, **absent: None) -> Any:
    """Expand ``layer_norm(input, weight, bias, axes, eps)``; ``absent`` are the operands that are not given."""
    weighted, biased = "weight" not in absent, "bias" not in absent
    attributes = {
        **_attributes(axes),
        "eps": ir.FloatAttr.get(ir.F64Type.get(), eps),
        "weight": ir.BoolAttr.get(weighted),
        "bias": ir.BoolAttr.get(biased),
    }
    define = partial(_forward, axes=axes, eps=eps, weighted=weighted, biased=biased)
    return composite(FORWARD, call, attributes, define)


def layer_norm_backward(call: Any, axes: int, weight: None = None) -> Any:
    """Expand the gradient of :func:`layer_norm` by input, weight and bias."""
    return composite(BACKWARD, call, _attributes(axes), partial(_backward, axes=axes))


def _attributes(axes: int) -> dict[str, ir.Attribute]:
    return {"axes": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axes)}


def _forward(operands: list[Any], axes: int, eps: float, weighted: bool, biased: bool) -> list[Any]:
    value, *parameters = map(widened, operands)
    every = list(range(len(value.type.shape)))
    inner = every[len(every) - axes :]
    mean = _mean(value, inner)
    centred = stablehlo.subtract(value, spread(mean, value, every))
    variance = _mean(stablehlo.multiply(centred, centred), inner)
    rstd = stablehlo.rsqrt(stablehlo.add(variance, splat(variance.type, eps)))
    output = stablehlo.multiply(centred, spread(rstd, value, every))
    if weighted:
        output = stablehlo.multiply(output, spread(parameters[0], output, inner))
    if biased:
        output = stablehlo.add(output, spread(parameters[-1], output, inner))
    return [output, mean, rstd]


def _backward(operands: list[Any], axes: int) -> list[Any]:
    grad, value, mean, rstd, *weights = map(widened, operands)
    every = list(range(len(value.type.shape)))
    outer, inner = every[: len(every) - axes], every[len(every) - axes :]
    slope = spread(rstd, value, every)
    normal = stablehlo.multiply(stablehlo.subtract(value, spread(mean, value, every)), slope)
    weighted = stablehlo.multiply(grad, spread(weights[0], grad, inner)) if weights else grad
    along = spread(_mean(stablehlo.multiply(weighted, normal), inner), value, every)
    centred = stablehlo.subtract(weighted, spread(_mean(weighted, inner), value, every))
    grad_input = stablehlo.multiply(stablehlo.subtract(centred, stablehlo.multiply(normal, along)), slope)
    product = stablehlo.multiply(grad, normal)
    grad_weight, grad_bias = (reduced(found, outer, stablehlo.AddOp, 0.0) for found in (product, grad))
    return [grad_input, grad_weight, grad_bias]


def _mean(value: Any, axes: list[int]) -> Any:
    """Return the mean over ``axes``, which keep extent 1."""
    shape = list(value.type.shape)
    kept = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
    total = reduced(value, axes, stablehlo.AddOp, 0.0)
    total = stablehlo.reshape(ir.RankedTensorType.get(kept, value.type.element_type), total)
    return scaled(total, 1 / prod(shape[axis] for axis in axes))


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "neuron_compile.layer_norm": layer_norm,
    "neuron_compile.layer_norm_backward": layer_norm_backward,
}
"""Builders by operator: they take the call and its constants by name and return the results."""
