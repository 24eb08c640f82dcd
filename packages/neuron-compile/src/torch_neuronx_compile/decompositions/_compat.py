"""Private names of torch 2.13.0 that decompositions need; no public ones exist.

- ``torch.ops.torch_nn._linear_cross_entropy_batch_chunked`` and ``..._no_reduction``: what
  ``torch.nn.functional.linear_cross_entropy`` calls where it computes in chunks; importing the module defines them.
"""

import torch
import torch.nn.modules.linear_cross_entropy  # defines the operators
from torch._ops import OpOverload

chunked_cross_entropy: OpOverload = torch.ops.torch_nn._linear_cross_entropy_batch_chunked.default
chunked_cross_entropy_of_rows: OpOverload = torch.ops.torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default
