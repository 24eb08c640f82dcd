"""``nki.jit`` and ``nki.simulate``: kernels and how they are called."""

import functools
import inspect
import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import torch

from torch_neuronx import config
from torch_neuronx_nki.errors import NkiLaunchError
from torch_neuronx_nki.machine import maybe_core
from torch_neuronx_nki.options import Options, options
from torch_neuronx_nki.run import run_kernel
from torch_neuronx_nki.trace import Observer


@dataclass(frozen=True)
class CompileConfig:
    """Options of the vendor's compiler. They are kept and have no effect on the simulator."""

    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SpecializationConfig:
    """Options of the vendor's specialisation. They are kept and have no effect on the simulator."""

    options: dict[str, Any] = field(default_factory=dict)


class Kernel:
    """A kernel: a function, and on how many cores it runs.

    Calling it runs it: on tensors of device ``neuron``, CPU tensors, NumPy arrays, or, for shapes only, tensors without
    data. ``kernel[2]`` runs on two cores.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        lnc: int = 1,
        schedule: Sequence[tuple[str, Any]] = (),
        simulated: dict[str, Any] | None = None,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        self.func = function
        self.lnc = lnc
        self.schedule = tuple(schedule)
        self._simulated = simulated or {}
        self._observers = observers
        self.handle = next(_handles)
        """Names it in traced code."""
        _kernels[self.handle] = self
        functools.update_wrapper(self, function)

    @property
    def sign(self) -> inspect.Signature:
        """The signature of the function."""
        return inspect.signature(self.func)

    def __getitem__(self, grid: Any) -> "Kernel":
        """Run on ``grid`` cores: 1 or 2. Raises :class:`NkiLaunchError` for another number."""
        if torch.compiler.is_dynamo_compiling():
            return _InGraph(self.handle, grid)  # type: ignore[return-value] # Dynamo cannot trace making a kernel
        count = grid[0] if isinstance(grid, tuple) and len(grid) == 1 else grid
        count = getattr(count, "count", count)
        if not isinstance(count, int) or count not in (1, 2):
            raise NkiLaunchError(
                f"{self.func.__name__} is launched on {grid!r} cores. A logical core has 1 or 2 physical ones."
            )
        return self._with(lnc=count)

    def with_schedule(self, schedule: Sequence[tuple[str, Any]]) -> "Kernel":
        """Order instructions by name, as ``(later, earlier)``. The simulator runs in program order."""
        return self._with(schedule=tuple(schedule))

    def _with(self, **changes: Any) -> "Kernel":
        made: dict[str, Any] = {
            "lnc": self.lnc,
            "schedule": self.schedule,
            "simulated": self._simulated,
            "observers": self._observers,
        }
        return Kernel(self.func, **(made | changes))

    def options(self) -> Options:
        """Return how it is simulated."""
        return options(**self._simulated)

    @property
    def settings(self) -> dict[str, Any]:
        """What ``nki.simulate`` was given."""
        return dict(self._simulated)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, or where code is traced, put it into the graph.

        See :func:`torch_neuronx_nki.launch.run` for what is raised.
        """
        if torch.compiler.is_dynamo_compiling():
            from torch_neuronx_nki.dynamo import call_in_graph

            return call_in_graph(self.handle, self.lnc, *args, **kwargs)
        if maybe_core() is not None:
            return self.func(*args, **kwargs)  # a kernel that another one calls is a part of it
        from torch_neuronx_nki.wrap import call_as_node, is_traced

        if is_traced(args, kwargs):
            return call_as_node(self.func, args, kwargs, lnc=self.lnc, settings=self.settings)
        return run_kernel(
            self.func,
            args,
            kwargs,
            lnc=self.lnc,
            settings=self._simulated,
            observers=self._observers,
            on_cpu=bool(self._simulated) or config.get(config.NKI_SIMULATOR),
        )

    def __repr__(self) -> str:
        return f"<nki kernel {self.func.__name__} on {self.lnc} core{'s' if self.lnc > 1 else ''}>"


_handles = itertools.count(1)
_kernels: "weakref.WeakValueDictionary[int, Kernel]" = weakref.WeakValueDictionary()


def kernel_of(handle: int) -> Kernel:
    """Return the kernel that has ``handle``."""
    return _kernels[handle]


class _InGraph:
    """``kernel[cores]`` in traced code."""

    def __init__(self, handle: int, grid: Any) -> None:
        self.handle = handle
        self.grid = grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from torch_neuronx_nki.dynamo import call_in_graph

        return call_in_graph(self.handle, self.grid, *args, **kwargs)


@overload
def jit(function: Callable[..., Any], /, **settings: Any) -> Kernel: ...
@overload
def jit(function: None = None, /, **settings: Any) -> Callable[[Callable[..., Any]], Kernel]: ...


def jit(function: Any = None, /, **settings: Any) -> Any:
    """Make a kernel of a function.

    ``compile_config`` and ``specialization_config`` are accepted. ``mode`` has no effect since version 0.3; a
    ``platform_target`` raises :class:`NkiLaunchError`: set ``NEURON_PLATFORM_TARGET_OVERRIDE``.
    """
    if "platform_target" in settings:
        raise NkiLaunchError(
            "nki.jit has no platform_target. Set NEURON_PLATFORM_TARGET_OVERRIDE, or simulate with "
            "nki.simulate(kernel, target=...)."
        )
    known = {
        "mode",
        "compile_config",
        "specialization_config",
        "experimental_flags",
        "debug_kernel",
        "show_compiler_tb",
    }
    unknown = sorted(set(settings) - known)
    if unknown:
        raise NkiLaunchError(f"nki.jit does not know {', '.join(unknown)}. It takes {', '.join(sorted(known))}.")
    if function is None:
        return lambda decorated: jit(decorated, **settings)
    if isinstance(function, Kernel):
        return function
    return Kernel(function)


def simulate(
    kernel: Any,
    *,
    target: str | None = None,
    language: str | None = None,
    observers: Sequence[Observer] = (),
    **settings: Any,
) -> Kernel:
    """Return ``kernel`` as one that is always simulated: ``nki.simulate(kernel[2])(x)`` or ``simulate(kernel)[2](x)``.

    ``target`` is a chip ("trn2", "trn3"), ``language`` a version ("0.3" to "0.7"), ``observers`` receive the records
    of ``torch_neuronx_nki.trace``; ``precise``, ``saturate_fp8``, ``poison`` and ``verify`` are
    fields of ``torch_neuronx_nki.options.Options``.
    """
    made = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    chosen = {"target": target, "language": language, **settings}
    return made._with(
        simulated={
            "precise": config.get(config.NKI_PRECISE_FP),
            **made._simulated,
            **{name: value for name, value in chosen.items() if value is not None},
        },
        observers=(*made._observers, *observers),
    )
