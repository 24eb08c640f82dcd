"""Every private name of torch and jaxlib that this package uses: the version it was checked against, and why.

torch 2.13.0:

- ``ShortenTraceback``: the one exception base that Dynamo hands to the user as it is, without wrapping it.
- ``aot_autograd``, ``min_cut_rematerialization_partition``: how every backend outside torch uses AOT Autograd.
- ``assume_static_by_default`` is how an explicit ``dynamic=True`` shows: the backend is not told.
- ``detect_fake_mode``: the fake mode of a graph under construction; passes compute metadata of new nodes with it.
- ``free_unbacked_symbols``: which shapes of a graph depend on data.
- ``invoke_subgraph``: what a region marked by ``nested_compile_region`` is in Dynamo's graph.
- ``unset_fake_temporarily``: a backend is called under a fake mode, and constants are real tensors.

jaxlib 0.10.2:

- ``buffer_to_dlpack_managed_tensor``, ``dlpack_managed_tensor_to_buffer``: the zero-copy door. The public one in jax
  adds its own array type and 20 us.
"""

from typing import Any

import torch
from torch._dynamo import config as _dynamo_config
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import ShortenTraceback
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import detect_fake_mode
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torch_neuronx_compile.xla_library import _jax

__all__ = [
    "ShortenTraceback",
    "aot_autograd",
    "detect_fake_mode",
    "export_array",
    "free_unbacked_symbols",
    "import_array",
    "invoke_subgraph",
    "min_cut_rematerialization_partition",
    "unset_fake_temporarily",
    "wants_dynamic_shapes",
]

_to_capsule = _jax.buffer_to_dlpack_managed_tensor
_from_capsule = _jax.dlpack_managed_tensor_to_buffer
_tensor_from_capsule = torch.utils.dlpack.from_dlpack


def wants_dynamic_shapes() -> bool:
    """Return whether the running compilation was asked for with ``dynamic=True``."""
    return not _dynamo_config.assume_static_by_default


def import_array(tensor: torch.Tensor, device: Any) -> Any:
    """Return an XLA array over the bytes of a contiguous CPU tensor; XLA copies if they are not 64-byte aligned."""
    return _from_capsule(tensor.__dlpack__(), device, None)


def export_array(array: Any) -> torch.Tensor:
    """Return a CPU tensor over the bytes of an XLA array."""
    tensor: torch.Tensor = _tensor_from_capsule(_to_capsule(array))
    return tensor
