"""Layer norm: ATen's kernel goes over a row while it lies in the cache, XLA over the tensor once for each sum."""

from math import prod
from typing import Any

from jaxlib.mlir import ir

from torch_neuronx_compile.compilers.emulator.rewrite.calls import foreign_call
from torch_neuronx_compile.compilers.emulator.rewrite.values import UP_TO_FLOAT32, element, replace, shape
from torch_neuronx_compile.worker.normalization import BACKWARD, FORWARD

SMALLEST = 4 * 1024
"""Elements from which a call of ATen pays off."""


def rewrite_layer_norm(operation: Any) -> None:
    """Replace the composite of layer norm by a call, if it is large enough."""
    value, *parameters = operation.operands
    if _fits(value, parameters):
        given = ir.DictAttr(operation.attributes["composite_attributes"])
        attributes = {name: given[name] for name in ("axes", "eps", "weight", "bias")}
        _call(operation, "neuron_layer_norm", attributes)


def rewrite_layer_norm_backward(operation: Any) -> None:
    """Replace the composite of layer norm's gradient by a call, if it is large enough."""
    value, weights = operation.operands[1], list(operation.operands)[4:]
    if _fits(value, weights):
        wanted = [any(True for _ in result.uses) for result in operation.results]
        given = ir.DictAttr(operation.attributes["composite_attributes"])
        attributes = {
            "axes": given["axes"],
            "weight": ir.BoolAttr.get(bool(weights)),
            "wanted": ir.DenseI64ArrayAttr.get(list(map(int, wanted))),
        }
        _call(operation, "neuron_layer_norm_backward", attributes)


REWRITERS = {FORWARD: rewrite_layer_norm, BACKWARD: rewrite_layer_norm_backward}
"""By the name of the composite."""


def _fits(value: Any, parameters: list[Any]) -> bool:
    kind = element(value)
    floats = kind in UP_TO_FLOAT32 and all(element(found) in ("f32", kind) for found in parameters)
    return floats and prod(shape(value)) >= SMALLEST


def _call(operation: Any, target: str, attributes: dict[str, Any]) -> None:
    with ir.InsertionPoint(operation):
        kinds = [result.type for result in operation.results]
        results = foreign_call(target, kinds, list(operation.operands), attributes)
    replace(operation, *results)
