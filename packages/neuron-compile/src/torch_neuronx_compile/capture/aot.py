"""AOT Autograd, set up for this backend."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_neuronx_compile._compat import aot_autograd, min_cut_rematerialization_partition
from torch_neuronx_compile.decompositions.table import decompositions
from torch_neuronx_compile.passes.random import seed_random_operators
from torch_neuronx_compile.unit import GraphKind

CompileGraph = Callable[[fx.GraphModule, GraphKind], Callable[..., Any]]


def trace(module: fx.GraphModule, inputs: Sequence[Any], compile_graph: CompileGraph) -> Callable[..., Any]:
    """Return what Dynamo calls in place of ``module``, made of what ``compile_graph`` returns for each AOT graph."""

    def compiler(kind: GraphKind) -> Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
        return lambda graph, _: compile_graph(graph, kind)

    backend = aot_autograd(
        fw_compiler=compiler(GraphKind.FORWARD),
        bw_compiler=compiler(GraphKind.BACKWARD),
        inference_compiler=compiler(GraphKind.INFERENCE),
        decompositions=decompositions(),
        partition_fn=_partition,
    )
    # The fused attention kernels of eager mode have no lowering; their definition in plain operators has.
    with sdpa_kernel(SDPBackend.MATH):
        compiled: Callable[..., Any] = backend(module, inputs)
    return compiled


def _partition(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    seed_random_operators(joint.graph)
    joint.recompile()
    forward: fx.GraphModule
    backward: fx.GraphModule
    forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
    return forward, backward


def device_of(inputs: Sequence[Any]) -> torch.device:
    """Return the neuron device of the first input that has one, else the current one."""
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.device.type == "neuron":
            return value.device
    return torch.device("neuron", torch.accelerator.current_device_index())
