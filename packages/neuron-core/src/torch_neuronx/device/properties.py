"""What a core is: name, memory, capability, dtypes."""

from dataclasses import dataclass

import torch

from torch_neuronx.device import _opening
from torch_neuronx.device.cores import Device, device_index

# Compute capability in CUDA's form is the NeuronCore generation: v3 on Trainium2, v4 on Trainium3.
_GENERATIONS = {"trn2": (3, 0), "trn3": (4, 0)}


@dataclass(frozen=True, slots=True)
class NeuronDeviceProperties:
    """One logical core. Sizes are bytes."""

    name: str
    """The instance family: ``trn2``, ``trn3``."""
    total_memory: int
    logical_core: int
    """Number of the core on the chip."""
    physical_cores: tuple[int, ...]
    lnc: int
    """Physical cores per logical core."""
    sbuf_bytes: int
    """On-chip state buffer of one physical core."""
    psum_bytes: int
    """Accumulation buffer of one physical core."""
    partitions: int

    @property
    def multi_processor_count(self) -> int:
        """The number of physical cores, which is what CUDA's field of this name counts."""
        return len(self.physical_cores)


def get_device_properties(device: Device = None) -> NeuronDeviceProperties:
    """Return the properties of a core. Raises :class:`DeviceError` for one that this process does not see."""
    index = device_index(device)
    layout = _opening.layout()
    core = layout.logical_cores[index]
    return NeuronDeviceProperties(
        name=layout.target.name,
        total_memory=layout.hbm_bytes_per_core,
        logical_core=core.index,
        physical_cores=core.physical,
        lnc=layout.lnc,
        sbuf_bytes=layout.target.sbuf,
        psum_bytes=layout.target.psum,
        partitions=layout.target.partitions,
    )


def get_device_name(device: Device = None) -> str:
    """Return the name of the chip that a core is on: ``trn2``, ``trn3``."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Return the NeuronCore generation as ``(major, minor)``: ``(3, 0)`` on trn2, ``(4, 0)`` on trn3.

    A target that a plugin adds has ``(0, 0)``: its generation is not a NeuronCore's.
    """
    return _GENERATIONS.get(get_device_properties(device).name, (0, 0))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the chip computes in bfloat16 (every Trainium does)."""
    return "bfloat16" in _opening.layout().target.native_dtypes


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that ``torch.autocast("neuron")`` accepts."""
    return [torch.bfloat16, torch.float16]
