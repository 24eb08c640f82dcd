"""Operators of this package's own for which neuronx-cc documents a custom call each.

Their kernels here serve graphs that run in eager mode.
"""

import torch
from torch import Tensor

from torch_neuronx_compile.ops import Operator, define


def call(name: str, *arguments: Tensor | int) -> Tensor:
    """Call the operator ``name``, which has one result."""
    define()
    result: Tensor = getattr(torch.ops.neuron_compile, name)(*arguments)
    return result


def topk(self: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the ``k`` greatest along the last dimension, the greatest first, and their int64 positions."""
    define()
    values, positions = torch.ops.neuron_compile.topk(self, k)
    return values, positions


def _same(self: Tensor, *others: Tensor | int) -> Tensor:
    return torch.empty_like(self, memory_format=torch.contiguous_format)


def _gelu_tanh(self: Tensor) -> Tensor:
    return torch.nn.functional.gelu(self, approximate="tanh")


def _softmax(self: Tensor, dim: int) -> Tensor:
    return torch.softmax(self, dim)


def _fake_softmax(self: Tensor, dim: int) -> Tensor:
    return _same(self)


def _softmax_backward(grad: Tensor, output: Tensor, dim: int) -> Tensor:
    result: Tensor = torch.ops.aten._softmax_backward_data.default(grad, output, dim, output.dtype)
    return result


def _argmax(self: Tensor, dim: int) -> Tensor:
    return self.argmax(dim)


def _argmin(self: Tensor, dim: int) -> Tensor:
    return self.argmin(dim)


def _fake_argument(self: Tensor, dim: int) -> Tensor:
    return self.new_empty([*self.shape[:dim], *self.shape[dim + 1 :]], dtype=torch.int64)


def _topk(self: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, positions = torch.topk(self, k)
    return values, positions


def _fake_topk(self: Tensor, k: int) -> tuple[Tensor, Tensor]:
    shape = [*self.shape[:-1], k]
    return self.new_empty(shape), self.new_empty(shape, dtype=torch.int64)


OPERATORS: tuple[Operator, ...] = (
    ("gelu(Tensor self) -> Tensor", torch.ops.aten.gelu.default, _same),
    ("gelu_tanh(Tensor self) -> Tensor", _gelu_tanh, _same),
    ("gelu_backward(Tensor grad, Tensor self) -> Tensor", torch.ops.aten.gelu_backward.default, _same),
    ("silu(Tensor self) -> Tensor", torch.ops.aten.silu.default, _same),
    ("silu_backward(Tensor grad, Tensor self) -> Tensor", torch.ops.aten.silu_backward.default, _same),
    ("softmax(Tensor self, int dim) -> Tensor", _softmax, _fake_softmax),
    ("softmax_backward(Tensor grad, Tensor output, int dim) -> Tensor", _softmax_backward, _same),
    ("argmax(Tensor self, int dim) -> Tensor", _argmax, _fake_argument),
    ("argmin(Tensor self, int dim) -> Tensor", _argmin, _fake_argument),
    ("topk(Tensor self, int k) -> (Tensor, Tensor)", _topk, _fake_topk),
)
"""Schemas, kernels, and what they give for fake tensors."""
