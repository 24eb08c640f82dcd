"""Random numbers of the cores.

Each core has one counter-based generator, whose state is 16 bytes (seed, offset). It feeds eager operators, compiled
graphs and DTensor, so that one ``manual_seed`` makes all three reproducible. Nothing here opens the device.
"""

from collections.abc import Iterable

import torch

from torch_neuronx import _C
from torch_neuronx.device.cores import Device, device_count, device_index


def default_generator(device: Device = None) -> torch.Generator:
    """Return the generator that random operators on a core use unless they are given another."""
    generator: torch.Generator = _C.default_generator(device_index(device))
    return generator


def default_generators() -> tuple[torch.Generator, ...]:
    """Return the default generator of each core, which is what ``torch.neuron.default_generators`` is."""
    return tuple(default_generator(index) for index in range(device_count()))


def manual_seed(seed: int) -> None:
    """Seed the generator of the current core."""
    default_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all cores; ``torch.manual_seed`` does so too."""
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the generator of the current core from the system and return the seed."""
    return default_generator().seed()


def seed_all() -> int:
    """Seed the generators of all cores with one seed from the system and return it."""
    fresh = seed()
    manual_seed_all(fresh)
    return fresh


def initial_seed() -> int:
    """Return the seed of the current core's generator."""
    return default_generator().initial_seed()


def get_rng_state(device: Device = "neuron") -> torch.Tensor:
    """Return the state of a core's generator: 16 bytes on the CPU, the seed and the offset."""
    return default_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all cores' generators."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: Device = "neuron") -> None:
    """Restore the state of a core's generator. Raises :class:`RuntimeError` for a state of another size."""
    default_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore the states of the cores' generators, the first for core 0."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
