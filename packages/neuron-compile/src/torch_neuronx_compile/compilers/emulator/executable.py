"""A loaded XLA:CPU program that reads and writes device memory in place."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from torch_neuronx.errors import NEFFExecutionError
from torch_neuronx.runtimes.interface import Executable, TensorInfo, Usage
from torch_neuronx_compile import _C
from torch_neuronx_compile._compat import unset_fake_temporarily
from torch_neuronx_compile.compilers.emulator.arrays import Arrays, described
from torch_neuronx_compile.compilers.emulator.handlers import raise_plugins_error, register_own_handlers
from torch_neuronx_compile.compilers.emulator.python_handler import reraised
from torch_neuronx_compile.xla_library import capsule_of_array, compile_options, xla_client

if TYPE_CHECKING:  # what compiles takes a fifth of a second, and who loads a program need not have it
    from torch_neuronx_compile.compilers.emulator.steps import Steps

_THREADS = "NPROC"
"""Variable in which XLA looks for the number of its threads, when a client is made; there is no option for it."""


@cache
def _client() -> Any:
    # Synchronous: when a call returns, its outputs are there, as after an eager operator of the emulator.
    with _threads(max(1, torch.get_num_threads() - 1)):
        client = xla_client.make_cpu_client(asynchronous=False)
    register_own_handlers()
    return client


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Have XLA start that many threads, where the user asks for no number.

    With the thread that calls it they are as many as torch has. It would start one for each processor in every rank of
    a job: they take the processors from the threads that the other ranks' collectives wait for.
    """
    if _THREADS in os.environ:
        yield
        return
    os.environ[_THREADS] = str(count)
    try:
        yield
    finally:
        os.environ.pop(_THREADS, None)


def get_ready() -> None:
    """Do once what the first program would wait for: start XLA."""
    _client()


class XlaExecutable(Executable):
    """Its inputs are views of device memory, remembered by address; its outputs are adopted: no copies."""

    def __init__(
        self,
        name: str,
        serialized: bytes,
        tensors: dict[str, list[tuple[str, list[int]]]],
        core: int,
        steps: "Steps | None" = None,
    ) -> None:
        """Load an executable that this version of XLA serialized; raises :class:`NEFFExecutionError` otherwise.

        A small program that is given as ``steps`` as well runs as these.
        """
        self._name = name
        self._core = core
        self._tensors = tuple(
            _info(f"{usage}{i}", usage, *tensor)
            for usage, found in ((Usage.INPUT, tensors["inputs"]), (Usage.OUTPUT, tensors["outputs"]))
            for i, tensor in enumerate(found)
        )
        devices = xla_client.DeviceList((_client().devices()[0],))
        try:
            self._loaded: Any = _client().deserialize_executable(serialized, devices, compile_options())
        except xla_client.XlaRuntimeError as error:
            raise NEFFExecutionError(
                f"XLA did not load the program {name!r}: {error}. Compile it again on this machine."
            ) from error
        self._run: _C.Program | _C.Steps | None = None
        if steps is not None:
            with unset_fake_temporarily():  # programs are loaded while AOT Autograd traces
                constants = [torch.tensor(number, dtype=getattr(torch, dtype)) for dtype, number in steps["constants"]]
            written = [(operation, operands, numbers) for operation, operands, numbers in steps["steps"]]
            self._run = _C.Steps(len(tensors["inputs"]), constants, written, steps["results"], core)
            return
        arrays = Arrays(devices)
        self._run = _C.Program(
            self._loaded.execute_sharded,
            arrays.over_memory(),
            capsule_of_array,
            [described(*tensor) for tensor in tensors["inputs"]],
            [arrays.of_result(described(*tensor)) for tensor in tensors["outputs"]],
            core,
        )

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Inputs, then outputs."""
        return self._tensors

    @property
    def temporary_bytes(self) -> int:
        """Memory that XLA takes during a call beside inputs and outputs."""
        return int(self._loaded.get_compiled_memory_stats().temp_size_in_bytes)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run on tensors of the executable's core; shapes and dtypes are the caller's promise.

        Raises :class:`NEFFExecutionError`, or what a handler written in Python raised.
        """
        run = self._run
        if run is None:
            raise NEFFExecutionError(f"The program {self._name!r} was unloaded. Load its NEFF again.")
        try:
            return run(inputs if type(inputs) is list else list(inputs))
        except xla_client.XlaRuntimeError as error:
            raise_plugins_error()
            raised = reraised(str(error))
            if raised is not None:
                raised.add_note(f"It was raised inside the program {self._name!r} on neuron:{self._core}.")
                raise raised from None
            raise NEFFExecutionError(f"The program {self._name!r} failed on neuron:{self._core}: {error}.") from error

    def unload(self) -> None:
        """Let the program go."""
        self._loaded = self._run = None


def _info(name: str, usage: Usage, dtype: str, shape: list[int]) -> TensorInfo:
    itemsize: int = getattr(torch, dtype).itemsize
    return TensorInfo(name, usage, dtype, tuple(shape), prod(shape) * itemsize)
