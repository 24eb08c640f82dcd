"""The layout of fake convolutions on the device: that of oneDNN's, which run in eager mode.

PyTorch asks which kernel a device has, and takes the result of one that it does not know to be contiguous. Nets whose
tensors have their channels last would compile as if they had not.
"""

from typing import Any

import torch
from torch import Tensor

from torch_neuronx_compile._compat import fake_convolution, first_fake_tensor_rule, layout_of_convolution

_OP = torch.ops.aten.convolution.default


def install() -> None:
    """Have fake tensors follow the rule from now on."""
    first_fake_tensor_rule(lambda op: op is _OP, _rule)


def _rule(mode: Any, op: Any, input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Any:
    if input.device.type != "neuron" or weight.dim() not in (4, 5) or input.dim() != weight.dim():
        return NotImplemented
    with mode:  # so that they say which device is theirs
        layout = layout_of_convolution(input, weight)
    if layout is torch.contiguous_format:
        return NotImplemented
    result: Any = fake_convolution(mode, op, input, weight, *args, **kwargs)
    with mode:
        return result.to(memory_format=layout)
