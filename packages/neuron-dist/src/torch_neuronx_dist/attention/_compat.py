"""Names of torch's context parallelism that are not public. Checked with torch 2.13."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel._attention import _cp_options as options
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _templated_ring_attention as ring_attention,
)
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _templated_ring_attention_backward as ring_attention_backward,
)
from torch.distributed.tensor.experimental._context_parallel._attention import custom_ops

__all__ = ["any_order", "context_parallel", "handlers", "ring_attention", "ring_attention_backward"]

handlers = cast("dict[Any, Callable[..., Any]]", custom_ops)
"""What DTensor does with operators while a block of :func:`context_parallel` runs; read when the block begins."""


@contextmanager
def any_order() -> Iterator[None]:
    """Have rings take each rank's part of the sequence for a whole: PyTorch's deals out head and tail where it can."""
    before, options.enable_load_balance = options.enable_load_balance, False
    try:
        yield
    finally:
        options.enable_load_balance = before
