"""Runs a kernel: binds its arguments to memory, gives each core a turn, and hands back what it returns.

The cores of a launch take turns: one runs until it waits for another or ends. So a launch gives the same result each
time, and a core that waits for what never comes is found at once.
"""

import contextvars
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map

import torch_neuronx
from torch_neuronx_nki import dtypes, misuse, source, tensors, trace
from torch_neuronx_nki.dtypes import Codec, Dtype, as_dtype, codec
from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.errors import NkiLaunchError, NkiValidationError
from torch_neuronx_nki.machine import Core, Launch, Memory, maybe_core, row_of, set_core, violation
from torch_neuronx_nki.options import Options
from torch_neuronx_nki.tensors import NkiTensor
from torch_neuronx_nki.verifier import verifier


@source.calls_back
def run(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    options: Options,
    lnc: int,
    observers: tuple[trace.Observer, ...] = (),
    on_cpu: bool = True,
) -> Any:
    """Run ``function`` on ``lnc`` cores and return its results, on the device of its arguments.

    ``on_cpu=False`` refuses arguments that are not on a device.
    Raises :class:`NkiValidationError` for a rule that it breaks, :class:`NkiLaunchError` where it cannot run, and what
    the function raises.
    """
    if maybe_core() is not None:
        return function(*args, **kwargs)  # a kernel that another one calls is a part of it
    flat, _ = tree_flatten((args, dict(kwargs)))
    given = [value for value in flat if isinstance(value, torch.Tensor)]
    computes = not any(_without_data(value) for value in given)
    device = next((value.device for value in given), torch.device("cpu"))
    as_numpy = not given and any(isinstance(value, np.ndarray) for value in flat)
    if computes and device.type == "cpu" and not on_cpu:
        raise NkiLaunchError(
            f"{getattr(function, '__name__', 'A kernel')} is called on CPU tensors and NKI_SIMULATOR is off. Move them "
            "to device neuron, call nki.simulate(kernel), or set NKI_SIMULATOR=1."
        )
    launch = Launch(
        kernel=getattr(function, "__name__", "kernel"),
        options=options,
        lnc=lnc,
        computes=computes,
        observers=(*trace.current_observers(), *observers),
        device=device,
    )
    code = getattr(function, "__code__", None)
    launch.tell(
        trace.LaunchStarted(
            kernel=launch.kernel,
            target=options.limits.target,
            generation=options.limits.generation,
            lnc=lnc,
            language=options.language,
            computes=computes,
            source=None
            if code is None
            else trace.SourceLocation(code.co_filename, code.co_firstlineno, function.__qualname__),
        )
    )
    cores = [Core(launch, index) for index in range(lnc)]
    watching = verifier.begin(launch, cores)
    outputs: tuple[int, ...] = ()
    failure: BaseException | None = None
    try:
        with torch.no_grad(), _on_device(device, computes):
            bound_args, bound_kwargs = _Binding(launch, cores[0]).bind((args, dict(kwargs)))
            if lnc == 1:
                before = set_core(cores[0])
                try:
                    result = function(*bound_args, **bound_kwargs)
                finally:
                    set_core(before)
            else:
                result = _Turns(launch, cores).run(partial(function, *bound_args, **bound_kwargs))
            returned = [value for value in tree_flatten(result)[0] if isinstance(value, NkiTensor)]
            outputs = tuple(value.memory.id for value in returned)
            if watching is not None:
                watching.finish(tuple(value.memory.watched for value in returned if value.memory.watched is not None))
            return tree_map(lambda value: _handed_back(value, device, as_numpy), result)
    except BaseException as error:
        failure = misuse.explained(error) or error
        if failure is error:
            raise
        raise failure from error
    finally:
        launch.tell(trace.LaunchFinished(launch.kernel, tuple(core.issued for core in cores), outputs, failure))


def _without_data(tensor: torch.Tensor) -> bool:
    from torch_neuronx_nki._compat import is_fake

    return tensor.device.type == "meta" or is_fake(tensor)


def _on_device(device: torch.device, computes: bool) -> AbstractContextManager[Any]:
    """Make what the kernel allocates the device's memory."""
    if device.type != "neuron" or not computes:
        return nullcontext()
    scope: AbstractContextManager[Any] = torch_neuronx._C.kernel_scope(device.index or 0)
    return scope


# Arguments and results ------------------------------------------------------------------------------------------------


class _Binding:
    """Makes tensors of the kernel of torch tensors and NumPy arrays, one per argument; the memory is the caller's."""

    def __init__(self, launch: Launch, core: Core) -> None:
        self.launch = launch
        self.core = core
        self.known: dict[int, NkiTensor] = {}

    def bind(self, tree: Any) -> Any:
        return tree_map(self._one, tree)

    def _one(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._remembered(value, lambda: self._torch(value))
        if isinstance(value, np.ndarray):
            return self._remembered(value, lambda: self._numpy(value))
        return value

    def _remembered(self, value: Any, make: Callable[[], NkiTensor]) -> NkiTensor:
        made = self.known.get(id(value))
        if made is None:
            made = self.known[id(value)] = make()
        return made

    def _torch(self, value: torch.Tensor) -> NkiTensor:
        dtype = as_dtype(value.dtype)
        if dtype is None:
            raise _refused(value.dtype)
        if dtype is dtypes.float8_e4m3fn and self.core.limits.generation < 4:
            dtype = dtypes.float8_e4m3  # torch has no name for the chip's own
        how = codec(dtype, saturate=self.launch.options.saturate_fp8)
        if not self.launch.computes:
            # a kernel is made for sizes that are known: what stands for a size becomes the number
            return self._made(value, how, tuple(map(int, value.shape)), tuple(map(int, value.stride())), None)
        tensor = value.detach()
        if tensor.device.type == "neuron":
            tensor = torch_neuronx._C.cpu_alias(tensor)
        elif tensor.device.type != "cpu":
            raise NkiLaunchError(
                f"A kernel argument is on device {tensor.device}. Move it to device neuron or to the CPU."
            )
        if how.carrier is not tensor.dtype:
            tensor = tensor.view(how.carrier)
        return self._made(value, how, tuple(tensor.shape), tuple(tensor.stride()), tensor)

    def _numpy(self, value: np.ndarray) -> NkiTensor:
        dtype = as_dtype(value.dtype)
        if dtype is None:
            raise _refused(value.dtype)
        how = codec(dtype, saturate=self.launch.options.saturate_fp8)
        plain = value if value.dtype.isbuiltin == 1 else value.view(f"u{value.dtype.itemsize}")
        tensor = torch.from_numpy(plain).view(how.carrier)
        return self._made(value, how, tuple(tensor.shape), tuple(tensor.stride()), tensor)

    def _made(
        self, value: Any, how: Codec, shape: tuple[int, ...], strides: tuple[int, ...], tensor: torch.Tensor | None
    ) -> NkiTensor:
        flat = None
        if tensor is not None:
            reach = 1 + sum(stride * (size - 1) for stride, size in zip(strides, shape, strict=True) if size)
            flat = torch.as_strided(tensor, (max(reach, 0),), (1,))
        row = row_of(shape)
        memory = Memory(
            next(self.launch.ids), "", Buffer.shared_hbm, how, shape or (1,), row, row, flat=flat, origin=value
        )
        memory.is_dense = tensor is None or tensor.is_contiguous()
        if self.core.observed:
            self.core.tell_allocation(memory, None)
        return tensors.whole(memory, strides or (1,))


def _refused(dtype: Any) -> NkiValidationError:
    return violation(
        "argument-dtype",
        f"A kernel argument is {dtype}",
        limit="the types of nki.language",
        actual=dtype,
        advice="Convert it: kernels have no 64-bit types and no complex numbers.",
    )


def _handed_back(value: Any, device: torch.device, as_numpy: bool) -> Any:
    if not isinstance(value, NkiTensor):
        return value
    memory = value.memory
    whole = value.offset == 0 and value.size == memory.row * (memory.shape[0] if memory.shape else 1)
    if memory.origin is not None and whole and value.shape == (tuple(memory.origin.shape) or (1,)):
        return memory.origin
    if memory.buffer is not Buffer.shared_hbm:
        raise violation(
            "output-buffer",
            f"The kernel returns a tensor in {memory.buffer.name}",
            limit="shared_hbm",
            actual=memory.buffer.name,
            advice="Allocate results with buffer=nl.shared_hbm and copy to them.",
        )
    dtype = dtypes.torch_dtype(value.dtype)
    if memory.flat is None:
        return torch.empty(value.shape, dtype=dtype, device=device)
    data = value.data
    if as_numpy:
        return _as_numpy(data, value.dtype)
    if data.dtype is not dtype:
        data = data.view(dtype)
    if device.type == "neuron":
        return torch_neuronx._C.adopt(data, device.index or 0)
    return data


def _as_numpy(data: torch.Tensor, dtype: Dtype) -> np.ndarray:
    """Return the elements as NumPy array; of a type of ml_dtypes where the caller has it, else as unsigned integers."""
    name = "bool" if dtype is dtypes.bool_ else str(dtype)
    extended = getattr(sys.modules.get("ml_dtypes"), name, None)
    target = np.dtype(extended or getattr(np, name, f"u{dtype.itemsize}"))
    unsigned = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[dtype.itemsize]
    return data.contiguous().view(unsigned).numpy().view(target)


# Cores ----------------------------------------------------------------------------------------------------------------


class _Stopped(BaseException):
    """Another core failed, so this one ends."""


class _Turns:
    """Runs cores in threads, one at a time, the next one when a core waits or ends."""

    def __init__(self, launch: Launch, cores: list[Core]) -> None:
        self.launch = launch
        self.cores = cores
        self.changed = threading.Condition()
        self.turn = 0
        self.running = set(range(len(cores)))
        self.waiting: dict[int, tuple[Any, Any]] = {}
        self.answers: dict[int, Any] = {}
        self.failure: BaseException | None = None
        self.results: dict[int, Any] = {}

    def run(self, body: Callable[[], Any]) -> Any:
        """Run ``body`` on every core and return what the first one returns."""
        grad, scope = torch.is_grad_enabled(), self.launch.device
        threads = []
        for core in self.cores:
            core.meet = lambda what, value, core=core: self._meet(core.index, what, value)
            context = contextvars.copy_context()
            threads.append(
                threading.Thread(
                    target=context.run, args=(self._core, core, body, grad, scope), name=f"nki-core-{core.index}"
                )
            )
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        return self.results[0]

    @source.calls_back
    def _core(self, core: Core, body: Callable[[], Any], grad: bool, device: torch.device) -> None:
        set_core(core)
        try:
            self._wait_for_turn(core.index)
            with torch.set_grad_enabled(grad), _on_device(device, self.launch.computes):
                self.results[core.index] = body()
        except _Stopped:
            pass
        except BaseException as error:
            if self.failure is None:
                self.failure = error
        finally:
            set_core(None)
            with self.changed:
                self.running.discard(core.index)
                self._next(core.index)

    def _wait_for_turn(self, index: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.turn == index or self.failure is not None)
            if self.failure is not None:
                raise _Stopped

    def _next(self, index: int) -> None:
        """Give the turn to the next core that can run; end all where none can."""
        count = len(self.cores)
        for step in range(1, count + 1):
            candidate = (index + step) % count
            if candidate in self.running and (candidate not in self.waiting or candidate in self.answers):
                self.turn = candidate
                self.changed.notify_all()
                return
        if self.running and self.failure is None:
            self.failure = NkiLaunchError(
                f"Core {min(self.running)} of {self.launch.kernel} waits at {self.waiting[min(self.running)][0]} for a "
                "core that has ended. Let all cores meet equally often."
            )
        self.changed.notify_all()

    def _meet(self, index: int, what: Any, value: Any) -> dict[int, Any]:
        """Wait until every core is at ``what``, and return what each brought."""
        with self.changed:
            self.waiting[index] = (what, value)
            arrived = {core: at for core, at in self.waiting.items() if core not in self.answers}
            if len(arrived) == len(self.cores):
                kinds = {kind for kind, _ in arrived.values()}
                if len(kinds) > 1:
                    self.failure = violation(
                        "cores",
                        f"Cores meet at different instructions: {sorted(map(str, kinds))}",
                        limit="the same instruction on every core",
                        actual=tuple(sorted(map(str, kinds))),
                        advice="Issue core_barrier and sendrecv in the same order on every core.",
                    )
                    self.changed.notify_all()
                    raise _Stopped
                brought = {core: value for core, (_, value) in arrived.items()}
                self.answers = {core: brought for core in arrived}
            else:
                self._next(index)
            if index not in self.answers or self.turn != index:
                self.changed.wait_for(
                    lambda: (index in self.answers and self.turn == index) or self.failure is not None
                )
            if self.failure is not None:
                raise _Stopped
            answer: dict[int, Any] = self.answers.pop(index)
            del self.waiting[index]
            return answer
