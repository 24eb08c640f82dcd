"""What of the process's state a library must not change behind its user's back."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from torch_neuronx.testing._compat import config_values

_OF_PYTEST = "PYTEST_CURRENT_TEST"  # pytest sets it itself, before and after each test


@dataclass(frozen=True)
class State:
    """The environment, torch's settings, and its configuration modules that were loaded, by name."""

    environment: Mapping[str, str]
    settings: Mapping[str, object]
    configurations: Mapping[str, Mapping[str, object]]


def capture_state() -> State:
    """Note the state as it is now."""
    return State(
        environment=MappingProxyType({key: value for key, value in os.environ.items() if key != _OF_PYTEST}),
        settings=MappingProxyType(
            {
                "default dtype": torch.get_default_dtype(),
                "default device": torch.get_default_device(),
                "grad mode": torch.is_grad_enabled(),
                "inference mode": torch.is_inference_mode_enabled(),
                "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
                "matmul precision": torch.get_float32_matmul_precision(),
                "threads": torch.get_num_threads(),
                "autocast on the CPU": torch.is_autocast_enabled("cpu"),
            }
        ),
        configurations=MappingProxyType(
            {name: values for name in sorted(sys.modules) if (values := config_values(name)) is not None}
        ),
    )


def state_differences(before: State, after: State) -> list[str]:
    """What differs, one line each; configuration modules that were not loaded before are left out."""
    lines = _changes("environment", before.environment, after.environment)
    lines += _changes("torch", before.settings, after.settings)
    for name, values in before.configurations.items():
        lines += _changes(name, values, after.configurations.get(name, values))
    return lines


def _changes(where: str, before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    names = sorted(before.keys() | after.keys())
    changed = [name for name in names if before.get(name) != after.get(name)]
    return [f"{where}: {name} was {before.get(name)!r}, is {after.get(name)!r}" for name in changed]
