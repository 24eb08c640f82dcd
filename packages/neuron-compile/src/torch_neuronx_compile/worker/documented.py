"""Operators of this package that become custom calls which neuronx-cc documents. Runs in the worker.

The operands are the operator's tensors in their order; its numbers are JSON in the call's configuration, as in the
calls whose form is public. Positions are int32: the chip has no int64.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

TARGETS = {
    "gelu": "AwsNeuronGelu",
    "gelu_tanh": "AwsNeuronGeluApprxTanh",
    "gelu_backward": "AwsNeuronGeluBackward",
    "silu": "AwsNeuronSilu",
    "silu_backward": "AwsNeuronSiluBackward",
    "softmax": "AwsNeuronSoftmax",
    "softmax_backward": "AwsNeuronSoftmaxBackward",
    "argmax": "AwsNeuronArgMax",
    "argmin": "AwsNeuronArgMin",
    "topk": "AwsNeuronTopK",
}
"""Custom-call targets by operator."""


def documented_call(call: Any, target: str, **numbers: int) -> Any:
    """Replace the call of an operator by the custom call ``target``."""
    i32 = ir.IntegerType.get_signless(32)
    kinds = [ir.RankedTensorType(result.type) for result in call.results]
    given = [ir.RankedTensorType.get(kind.shape, i32) if _is_position(kind) else kind for kind in kinds]
    operation = stablehlo.CustomCallOp(
        given,
        list(call.operands),
        call_target_name=ir.StringAttr.get(target),
        has_side_effect=ir.BoolAttr.get(False),
        api_version=ir.IntegerAttr.get(i32, 2),
        backend_config=ir.StringAttr.get(json.dumps(numbers, sort_keys=True) if numbers else ""),
    )
    return [
        stablehlo.convert(kind, result) if _is_position(kind) else result
        for kind, result in zip(kinds, operation.results, strict=True)
    ]


def _is_position(kind: Any) -> bool:
    return isinstance(kind.element_type, ir.IntegerType) and kind.element_type.width == 64


EXPANSIONS: dict[str, Callable[..., Any]] = {
    f"neuron_compile.{name}": partial(documented_call, target=target) for name, target in TARGETS.items()
}
"""Builders by operator: they take the call and its constants by name and return the results."""
