"""What Dynamo puts into a graph where a kernel is called: imported by traced code only."""

from typing import Any

import torch._dynamo

from torch_neuronx_nki.jit import kernel_of
from torch_neuronx_nki.wrap import call_as_node


def call_in_graph(handle: int, grid: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the kernel of ``handle`` on ``grid`` cores as a node."""
    (result,) = _call(handle, grid, *args, **kwargs) or (None,)
    return result


@torch._dynamo.nonstrict_trace
def _call(handle: int, grid: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    result: tuple[Any, ...] = _run(handle, grid, *args, **kwargs)
    return result


@torch.compiler.disable  # type: ignore[untyped-decorator] # where the call is no node after all, it runs as it is
def _run(handle: int, grid: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    kernel = kernel_of(handle)[grid]
    result = call_as_node(kernel.func, args, kwargs, lnc=kernel.lnc, settings=kernel.settings)
    return () if result is None else (result,)  # Dynamo takes no None out of a node
