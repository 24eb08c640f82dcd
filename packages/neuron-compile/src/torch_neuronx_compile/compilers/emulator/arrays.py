"""XLA's arrays on device memory, as jaxlib makes them when jax is not there to ask.

Importing jax takes a quarter of a second, in every process that runs a program. What jaxlib asks it for is a
description of each array and a sharding, so these are given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from torch_neuronx_compile.xla_library import Sharding, array_of_result, array_over, xla_client


@dataclass(frozen=True, slots=True)
class Description:
    """An array's shape and dtype, under the names that jax has for them."""

    shape: tuple[int, ...]
    dtype: "np.dtype[Any]"
    weak_type: bool = False
    """jax's word for a Python number's array; none of ours is."""


def described(dtype: str, shape: Sequence[int]) -> Description:
    """Describe arrays of torch's dtype ``dtype``."""
    return Description(tuple(shape), np.dtype(getattr(ml_dtypes, dtype, dtype)))


class Arrays:
    """Makes the arrays of programs on ``devices``, of which there is one."""

    def __init__(self, devices: Any) -> None:
        """Place arrays whole."""
        self._devices = list(devices)
        self._sharding = Sharding(devices, xla_client.HloSharding.replicate())

    def over_memory(self) -> Callable[..., Any]:
        """Return what makes an array of a description and ``xs``, a list of one NumPy array.

        It shares that one's memory if that is aligned to 64 bytes, and copies it where ``force_copy`` says so.
        """
        # Without enable_x64 it would narrow what has 64 bits.
        return partial(array_over, sharding=self._sharding, devices=self._devices, enable_x64=True)

    def of_result(self, result: Description) -> Any:
        """Return what makes a program's result an array of that description."""
        return array_of_result(result, self._sharding, committed=True, _skip_checks=True)
