"""Activations, softmax and arguments of extremes: custom calls that neuronx-cc documents, where there is one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.documented_ops import call

aten = torch.ops.aten


def gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """Decompose into the documented call."""
    return call("gelu" if approximate == "none" else "gelu_tanh", self)


def gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    """Decompose into the documented call, the tanh form into plain operators in float32."""
    if approximate == "none":
        return call("gelu_backward", grad_output, self)
    x = self.to(torch.float32)
    scale, cubic = 0.7978845608028654, 0.044715
    tanh = torch.tanh(scale * (x + cubic * x * x * x))
    slope = 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * scale * (1 + 3 * cubic * x * x)
    return (grad_output.to(torch.float32) * slope).to(self.dtype)


def silu(self: Tensor) -> Tensor:
    """Decompose into the documented call; complex numbers into plain operators."""
    return self / (1 + torch.exp(-self)) if self.is_complex() else call("silu", self)


def silu_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Decompose into the documented call; complex numbers into plain operators."""
    if not self.is_complex():
        return call("silu_backward", grad_output, self)
    sigmoid = 1 / (1 + torch.exp(-self))
    return grad_output * (sigmoid * (1 + self * (1 - sigmoid))).conj()


def softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Decompose into the documented call."""
    if self.dim() == 0:
        return torch.ones_like(self, dtype=torch.float32 if half_to_float else None)
    return call("softmax", self.to(torch.float32) if half_to_float else self, dim % self.dim())


def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """Decompose into the documented call."""
    if output.dim() == 0:
        return torch.zeros_like(output, dtype=input_dtype)
    return call("softmax_backward", grad_output.to(output.dtype), output, dim % output.dim()).to(input_dtype)


def _argument(name: str) -> Callable[..., Tensor]:
    def argument(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Decompose into the documented call."""
        if self.dim() == 0:
            return torch.zeros((), dtype=torch.int64, device=self.device)
        if dim is None:
            found = call(name, self.reshape(-1), 0)
            return found.reshape([1] * self.dim()) if keepdim else found
        found = call(name, self, dim % self.dim())
        return found.unsqueeze(dim) if keepdim else found

    return argument


def rrelu_with_noise(
    self: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:
    """Decompose: a random slope for every negative element in training, else their mean."""
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2), noise.clone()
    slope = torch.rand_like(self, dtype=torch.float32) * (upper - lower) + lower
    slope = torch.where(self <= 0, slope, 1.0).to(self.dtype)
    return self * slope, slope


def rrelu_with_noise_backward(
    grad_output: Tensor,
    self: Tensor,
    noise: Tensor,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> Tensor:
    """Decompose: torch-mlir's conversion adds ``self`` times the slope to the gradient outside training."""
    if training:
        return grad_output * noise
    return torch.where(self > 0, grad_output, grad_output * ((lower + upper) / 2))


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.gelu.default: gelu,
    aten.gelu_backward.default: gelu_backward,
    aten.silu.default: silu,
    aten.silu_backward.default: silu_backward,
    aten._softmax.default: softmax,
    aten._softmax_backward_data.default: softmax_backward,
    aten.argmax.default: _argument("argmax"),
    aten.argmin.default: _argument("argmin"),
    aten.rrelu_with_noise_functional.default: rrelu_with_noise,
    aten.rrelu_with_noise_backward.default: rrelu_with_noise_backward,
}
