"""Runs one launch: in the simulator, or by the equivalent function of torch where that is asked for."""

import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_neuronx import config, plugins
from torch_neuronx.events import KernelExecuted
from torch_neuronx_nki import launch
from torch_neuronx_nki.options import options
from torch_neuronx_nki.trace import Observer

_equivalents: "weakref.WeakKeyDictionary[Callable[..., Any], Callable[..., Any]]" = weakref.WeakKeyDictionary()


def equivalent(kernel: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say that the decorated function of torch tensors computes what ``kernel`` does, and returns it in the same form.

    With ``TORCH_NEURONX_EMULATOR_FAST_KERNELS=1`` it runs in the kernel's place, on tensors of the same device::

        @equivalent(add_kernel)
        def _(a, b):
            return a + b
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _equivalents[kernel.func] = function
        return function

    return register


def run_kernel(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    lnc: int,
    settings: Mapping[str, Any],
    observers: tuple[Observer, ...] = (),
    on_cpu: bool = True,
) -> Any:
    """Run ``function`` on ``lnc`` cores, and tell observers of the project how.

    ``settings`` are those of ``nki.simulate``: a kernel with some is always simulated. Raises what
    :func:`torch_neuronx_nki.launch.run` raises.
    """
    start = time.perf_counter()
    fast = _equivalents.get(function)
    replaced = fast is not None and not settings and not observers and _replaces(args, kwargs)
    if replaced:
        assert fast is not None
        with torch.no_grad():
            result = fast(*args, **kwargs)
    else:
        result = launch.run(
            function, args, kwargs, options=options(**settings), lnc=lnc, observers=observers, on_cpu=on_cpu
        )
    if plugins.manager().observed:
        name = getattr(function, "__name__", "kernel")
        plugins.notify(KernelExecuted(name, not replaced, time.perf_counter() - start))
    return result


def _replaces(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if not config.get(config.EMULATOR_FAST_KERNELS):
        return False
    tensors = [leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    return bool(tensors) and all(tensor.device.type in ("cpu", "neuron") for tensor in tensors)
