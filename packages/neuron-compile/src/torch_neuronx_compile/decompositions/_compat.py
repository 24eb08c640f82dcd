"""Private names of torch 2.13.0 and torch-mlir 20261001 that decompositions need; no public ones exist.

- ``torch.ops.torch_nn._linear_cross_entropy_batch_chunked`` and ``..._no_reduction``: what
  ``torch.nn.functional.linear_cross_entropy`` calls where it computes in chunks; importing the module defines them.
- ``torch._decomp._core_aten_decompositions_post_autograd`` and the lists of ``torch_mlir.extras.fx_decomp_util``:
  torch-mlir's table without composite operators. Its public function looks for those among all operators, which takes
  70 ms of a cold start, and they take themselves apart in every trace.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.modules.linear_cross_entropy  # defines the operators
from torch._decomp import _core_aten_decompositions_post_autograd, get_decompositions
from torch._ops import OpOverload
from torch_mlir.extras.fx_decomp_util import _EXPANDED_DECOMP_EXCLUDE, DEFAULT_DECOMPOSITIONS

chunked_cross_entropy: OpOverload = torch.ops.torch_nn._linear_cross_entropy_batch_chunked.default
chunked_cross_entropy_of_rows: OpOverload = torch.ops.torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default


def decompositions_of_torch_mlir() -> dict[OpOverload, Callable[..., Any]]:
    """Return what torch-mlir has PyTorch take apart, but for composite operators."""
    left_out = frozenset(_EXPANDED_DECOMP_EXCLUDE)
    found = dict(get_decompositions(DEFAULT_DECOMPOSITIONS))
    for op, function in _core_aten_decompositions_post_autograd().items():
        if isinstance(op, OpOverload) and op._overloadpacket not in left_out:
            found.setdefault(op, function)
    return {op: function for op, function in found.items() if isinstance(op, OpOverload)}
