"""Leave one device in the graph: the importer knows the CPU only, and the program runs on one core anyway."""

from typing import Any

import torch
from torch import fx


def of_the_cpu(graph: fx.Graph) -> set[fx.Node]:
    """Return what is on the CPU because the graph says so: copies from the device, and what is computed of them.

    What it makes there is among them too, unless it is given arguments on the CPU: those were copied to the device,
    and what comes of them is there.
    """
    given = any(_devices(node) == {"cpu"} for node in graph.find_nodes(op="placeholder"))
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op != "call_function" or _devices(node) != {"cpu"}:
            continue
        operands = node.all_input_nodes
        if not given or any(operand in found or "neuron" in _devices(operand) for operand in operands):
            found.add(node)
    return found


def _devices(node: fx.Node) -> set[str]:
    values: list[Any] = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return {value.device.type for value in values if isinstance(value, torch.Tensor)}


def move_to_cpu(graph: fx.Graph) -> None:
    """Replace the device in the arguments of every call by the CPU and drop copies from device to device.

    An output that is such a copy becomes an input of the program; ``strip_outputs`` must have run before, so that it
    is not taken for an output that is passed through.
    """
    cpu = torch.device("cpu")
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is torch.ops.prims.device_put.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            continue
        node.args = tuple(cpu if isinstance(argument, torch.device) else argument for argument in node.args)
        node.kwargs = {
            name: cpu if isinstance(argument, torch.device) else argument for name, argument in node.kwargs.items()
        }
