"""A loaded XLA:CPU program that reads and writes device memory in place."""

import ctypes
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import torch

from torch_neuronx import _C
from torch_neuronx.errors import NEFFExecutionError
from torch_neuronx.runtimes.interface import Executable, TensorInfo, Usage
from torch_neuronx_compile._compat import export_array, import_array
from torch_neuronx_compile.compilers.emulator.handlers import register_own_handlers
from torch_neuronx_compile.compilers.emulator.xla import compile_options
from torch_neuronx_compile.xla_library import xla_client

_IMPORTS_PER_INPUT = 16
"""How many addresses of one input are remembered: a training step alternates between a few."""


@cache
def _client() -> Any:
    # Synchronous: when a call returns, its outputs are there, as after an eager operator of the emulator.
    client = xla_client.make_cpu_client(asynchronous=False)
    register_own_handlers()
    return client


class XlaExecutable(Executable):
    """Its inputs are views of device memory, remembered by address; its outputs are adopted: no copies."""

    def __init__(
        self, name: str, serialized: bytes, tensors: dict[str, list[tuple[str, list[int]]]], core: int
    ) -> None:
        """Load an executable that this version of XLA serialized; raises :class:`NEFFExecutionError` otherwise."""
        self._name = name
        self._core = core
        self._tensors = tuple(
            _info(f"{usage}{i}", usage, *tensor)
            for usage, found in ((Usage.INPUT, tensors["inputs"]), (Usage.OUTPUT, tensors["outputs"]))
            for i, tensor in enumerate(found)
        )
        self._device = _client().devices()[0]
        devices = xla_client.DeviceList((self._device,))
        try:
            self._loaded: Any = _client().deserialize_executable(serialized, devices, compile_options())
        except xla_client.XlaRuntimeError as error:
            raise NEFFExecutionError(
                f"XLA did not load the program {name!r}: {error}. Compile it again on this machine."
            ) from error
        self._execute = self._loaded.execute_sharded
        self._imports: tuple[dict[int, Any], ...] = tuple({} for _ in tensors["inputs"])

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Inputs, then outputs."""
        return self._tensors

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run on tensors of the executable's core; shapes and dtypes are the caller's promise."""
        if self._loaded is None:
            raise NEFFExecutionError(f"The program {self._name!r} was unloaded. Load its NEFF again.")
        core = self._core
        try:
            with _C.kernel_scope(core):
                arrays = []
                alive = []  # contiguous copies must outlive the call
                for imported, tensor in zip(self._imports, inputs, strict=True):
                    if not tensor.is_contiguous():
                        tensor = tensor.contiguous()
                        alive.append(tensor)
                    array = imported.get(tensor.data_ptr())
                    if array is None:
                        array = self._import(imported, tensor)
                    arrays.append(array)
                results = self._execute(arrays).disassemble_into_single_device_arrays()
                return [_C.adopt(export_array(result[0]), core) for result in results]
        except xla_client.XlaRuntimeError as error:
            raise NEFFExecutionError(f"The program {self._name!r} failed on neuron:{core}: {error}.") from error

    def unload(self) -> None:
        """Let the program go."""
        self._loaded = self._execute = None
        self._imports = ()

    def _import(self, imported: dict[int, Any], tensor: torch.Tensor) -> Any:
        # The array is a view of the address, not of the tensor: it stays right for whatever tensor of this input is
        # there later. XLA copies what is not aligned, and a copy must not be remembered.
        array = import_array(_view(tensor), self._device)
        pointer = tensor.data_ptr()
        if pointer and array.unsafe_buffer_pointer() == pointer:
            if len(imported) >= _IMPORTS_PER_INPUT:
                imported.pop(next(iter(imported)))
            imported[pointer] = array
        return array


def _view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor over the address of a contiguous device tensor that does not keep its memory.

    Remembered arrays must not: the last activations of every graph would stay allocated.
    """
    nbytes = tensor.numel() * tensor.itemsize
    if nbytes == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    memory = (ctypes.c_char * nbytes).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)


def _info(name: str, usage: Usage, dtype: str, shape: list[int]) -> TensorInfo:
    itemsize: int = getattr(torch, dtype).itemsize
    return TensorInfo(name, usage, dtype, tuple(shape), prod(shape) * itemsize)
