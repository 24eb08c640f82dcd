"""``torch.neuron``: the device module, in the shape of ``torch.cuda``.

Everything PyTorch and its users ask of a device module by name is listed here; the submodules have the contents.
"""

from typing import Any

import torch  # noqa: F401 - it registers the device, which needs _compat whole

from torch_neuronx._compat import fold_into_graphs, run_between_graphs
from torch_neuronx.device import amp, memory, random
from torch_neuronx.device._opening import before_first_tensor as _lazy_init
from torch_neuronx.device._opening import is_in_bad_fork as _is_in_bad_fork  # noqa: F401 - PyTorch asks for it by this name
from torch_neuronx.device._opening import layout as _layout
from torch_neuronx.device._opening import lazy_init as _open
from torch_neuronx.device.cores import (
    current_device,
    device,
    device_count,
    device_of,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torch_neuronx.device.cores import device_index as _device_index
from torch_neuronx.device.cores import exchange_device as _exchange_device
from torch_neuronx.device.cores import maybe_exchange_device as _maybe_exchange_device  # noqa: F401 - PyTorch asks for it by this name
from torch_neuronx.device.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_neuronx.device.properties import (
    NeuronDeviceProperties,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
)
from torch_neuronx.device.random import default_generator as _get_generator  # noqa: F401 - PyTorch asks for it by this name
from torch_neuronx.device.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_neuronx.device.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "Event",
    "NeuronDeviceProperties",
    "Stream",
    "StreamContext",
    "amp",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_dynamo_metrics",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


fold_into_graphs([device_count, get_device_capability, get_device_name, is_available, is_bf16_supported])
run_between_graphs(
    [
        _device_index,
        _exchange_device,
        _layout,
        _lazy_init,
        _open,
        current_device,
        device.__init__,
        device.__enter__,
        device.__exit__,
        init,
        is_initialized,
        set_device,
        synchronize,
        empty_cache,
        memory._dump_snapshot,
        memory._record_memory_history,
        max_memory_allocated,
        max_memory_reserved,
        mem_get_info,
        memory_allocated,
        memory_reserved,
        memory_snapshot,
        memory_stats,
        memory_summary,
        reset_accumulated_memory_stats,
        reset_peak_memory_stats,
        set_per_process_memory_fraction,
        get_device_properties,
        random.default_generator,
        random.default_generators,
        get_rng_state,
        get_rng_state_all,
        initial_seed,
        manual_seed,
        manual_seed_all,
        seed,
        seed_all,
        set_rng_state,
        set_rng_state_all,
        Event.__new__,
        Stream.__new__,
        StreamContext.__init__,
        StreamContext.__enter__,
        StreamContext.__exit__,
        current_stream,
        default_stream,
        set_stream,
        stream,
    ]
)


def get_dynamo_metrics() -> list[object]:
    """Return the per-graph compilation metrics (needs the compile extra); see ``neuron_dynamo_backend``."""
    from torch_neuronx import neuron_dynamo_backend

    return list(neuron_dynamo_backend.get_dynamo_metrics())


def __getattr__(name: str) -> Any:
    """Answer for what ``torch.cuda`` has as a variable and what here follows the device."""
    if name == "_initialized":  # torch.utils.checkpoint keeps the generators' states only where this is true
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")
