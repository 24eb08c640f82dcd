"""How launches cross the compiler: the custom call that neuronx-cc documents, and what the emulator runs for it."""

from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx.lowerings import Lowering
from torch_neuronx_nki import graph_calls
from torch_neuronx_nki.fingerprint import simulator
from torch_neuronx_nki.graph_calls import GraphCall

CUSTOM_CALL = "AwsNeuronCustomNativeKernel"
"""The custom-call target of kernels."""


def lowerings() -> list[Lowering]:
    """Return the lowerings of the operators that stand for launches."""
    graph_calls.define()
    return [
        Lowering(
            f"{graph_calls.NAMESPACE}::{graph_calls.operator_name(outputs)}.default",
            CUSTOM_CALL,
            handler=_handler,
            fingerprint=simulator(),
            ordered="has_collectives",  # ranks meet in the order of the program
        )
        for outputs in range(1, graph_calls.MAX_RESULTS + 1)
    ]


def _handler() -> Callable[..., None]:
    return run_in_graph


def run_in_graph(operands: list[torch.Tensor], results: list[torch.Tensor], attributes: dict[str, Any]) -> None:
    """Run the launch that ``attributes`` describe on XLA's buffers.

    A kernel writes straight into the results that stand for arguments; its new tensors are copied.
    """
    call = GraphCall.read(attributes["backend_config"])
    tensors = list(operands)
    for position, result in zip(call.mutated, results, strict=False):
        tensors[position] = result.copy_(operands[position])
    new = graph_calls.execute(call, tensors)
    for result, value in zip(results[len(call.mutated) :], new, strict=True):
        result.copy_(value)
