"""Compute float64 as float32, as the chip does: operators, factories and reductions alike."""

from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from torch_neuronx import config
from torch_neuronx_compile._compat import detect_fake_mode
from torch_neuronx_compile.passes.emit import value_of


def narrow_float64(graph: fx.Graph) -> bool:
    """Replace float64 by float32 in inputs, arguments and metadata; return whether there was any.

    The switch that relaxes the emulator keeps float64, here as in eager mode.
    """
    if config.get(config.EMULATOR_RELAXED) or not any(_is_wide(node) for node in graph.nodes):
        return False

    def narrow(argument: Any) -> Any:
        return torch.float32 if argument is torch.float64 else argument

    for node in graph.nodes:
        if node.op == "placeholder" and _is_wide(node):
            value = node.meta["val"]
            mode = detect_fake_mode(value)
            assert mode is not None
            with mode:
                node.meta["val"] = torch.empty_strided(
                    value.shape, value.stride(), dtype=torch.float32, device=value.device
                )
        elif node.op == "call_function":
            node.args = map_aggregate(node.args, narrow)
            node.kwargs = map_aggregate(node.kwargs, narrow)
            node.meta["val"] = value_of(node)
    return True


def _is_wide(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return any(isinstance(item, torch.Tensor) and item.dtype is torch.float64 for item in values)
