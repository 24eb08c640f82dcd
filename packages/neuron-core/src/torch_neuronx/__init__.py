"""Trainium as a PyTorch device, on any machine.

``import torch`` is enough: the device ``neuron`` and ``torch.neuron`` are there. This package adds what has no place in
``torch.neuron``. Every name below loads on first use, so that importing the package costs nothing and needs no torch.
"""

import sys
from importlib import import_module
from typing import Any

# name -> module that has it
_NAMES = {
    # the device, under the names that programs for Trainium use
    "Event": "torch_neuronx.device",
    "Stream": "torch_neuronx.device",
    "current_device": "torch_neuronx.device",
    "current_stream": "torch_neuronx.device",
    "device_count": "torch_neuronx.device",
    "empty_cache": "torch_neuronx.device",
    "is_available": "torch_neuronx.device",
    "max_memory_allocated": "torch_neuronx.device",
    "max_memory_reserved": "torch_neuronx.device",
    "mem_get_info": "torch_neuronx.device",
    "memory_allocated": "torch_neuronx.device",
    "memory_reserved": "torch_neuronx.device",
    "memory_snapshot": "torch_neuronx.device",
    "memory_stats": "torch_neuronx.device",
    "memory_summary": "torch_neuronx.device",
    "reset_peak_memory_stats": "torch_neuronx.device",
    "set_device": "torch_neuronx.device",
    "stream": "torch_neuronx.device",
    "synchronize": "torch_neuronx.device",
    # sharing memory with the CPU
    "from_dlpack": "torch_neuronx.device.dlpack",
    "to_dlpack": "torch_neuronx.device.dlpack",
    # op tracking
    "clear_op_tracking": "torch_neuronx.ops.tracking",
    "get_executed_ops": "torch_neuronx.ops.tracking",
    "get_fallback_ops": "torch_neuronx.ops.tracking",
    # compilation
    "explain": "torch_neuronx.explaining",
    # kernels
    "nki_op": "torch_neuronx.nki",
    "wrap_nki": "torch_neuronx.nki",
}
_MODULES = frozenset(
    {
        "compiler",
        "config",
        "distributed",
        "errors",
        "metrics",
        "neuron_dynamo_backend",
        "nki",
        "ops",
        "plugins",
        "targets",
        "testing",
    }
)

__all__ = sorted([*_NAMES, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"torch_neuronx.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name == "_C":  # not loaded yet, or not to be loaded: built for another torch, it would crash and not raise
        registration = import_module("torch_neuronx._registration")
        registration.register()
        registration.raise_failure()
        return import_module("torch_neuronx._C")
    if name == "__version__":
        from torch_neuronx import installed

        return installed.version("torch-neuronx") or "0+unknown"
    raise AttributeError(f"module 'torch_neuronx' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _register_for_explicit_import() -> None:
    """Make ``import torch, torch_neuronx`` enough where torch's autoload is off."""
    torch = sys.modules.get("torch")
    if torch is None or getattr(torch.__spec__, "_initializing", False):
        return  # `import torch` calls the entry point at its end
    from torch_neuronx._autoload import autoload

    autoload()


_register_for_explicit_import()
