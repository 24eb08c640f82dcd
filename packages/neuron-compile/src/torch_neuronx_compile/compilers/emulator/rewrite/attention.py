"""Attention: ATen's kernel goes through the keys block by block, and never writes the weights to memory."""

from math import prod
from typing import Any

from jaxlib.mlir import ir

from torch_neuronx_compile.compilers.emulator.rewrite.calls import foreign_call
from torch_neuronx_compile.compilers.emulator.rewrite.values import UP_TO_FLOAT32, element, replace, shape, view_of
from torch_neuronx_compile.worker.attention import BACKWARD, FORWARD

SMALLEST = 16 * 1024
"""Multiplications of queries by keys from which a call of ATen pays off."""

_KERNELS = {FORWARD: "neuron_attention", BACKWARD: "neuron_attention_backward"}
_BY_QUERY = (0, 2, 1, 3)
"""Heads within queries: how ATen's kernel writes its results, and how the next projection reads them."""


def rewrite_attention(operation: Any) -> None:
    """Replace the composite of attention, or of its gradient, by a call, if it is large enough."""
    name = ir.StringAttr(operation.attributes["name"]).value
    operands = list(operation.operands)
    query, key, value = operands[:3] if name == FORWARD else operands[1:4]
    bias = operands[3:] if name == FORWARD else operands[4:-2]
    if element(query) not in UP_TO_FLOAT32 or shape(query)[-1] != shape(value)[-1]:
        return
    if any(element(found) not in ("f32", element(query)) for found in bias):
        return
    if prod(shape(query)) * shape(key)[2] < SMALLEST:
        return
    views = [view_of(operand) for operand in operands]
    given = ir.DictAttr(operation.attributes["composite_attributes"])
    attributes = {
        **{f"view{position}": view.attribute() for position, view in enumerate(views)},
        "causal": given["causal"],
        "scale": given["scale"],
        "bias": ir.BoolAttr.get(bool(bias)),
    }
    with ir.InsertionPoint(operation):
        results = foreign_call(
            _KERNELS[name],
            [result.type for result in operation.results],
            [view.base for view in views],
            attributes,
            operand_orders=[view.order for view in views],
            result_orders=[_BY_QUERY if name == BACKWARD else None for _ in operation.results],
        )
    replace(operation, *results)


REWRITERS = {FORWARD: rewrite_attention, BACKWARD: rewrite_attention}
"""By the name of the composite."""
