"""Names of torch's context parallelism that are not public. Checked with torch 2.13."""

from collections.abc import Callable
from typing import Any, cast

from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _templated_ring_attention as ring_attention,
)
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _templated_ring_attention_backward as ring_attention_backward,
)
from torch.distributed.tensor.experimental._context_parallel._attention import custom_ops

__all__ = ["context_parallel", "handlers", "ring_attention", "ring_attention_backward"]

handlers = cast("dict[Any, Callable[..., Any]]", custom_ops)
"""What DTensor does with operators while a block of :func:`context_parallel` runs; read when the block begins."""
