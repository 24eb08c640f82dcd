"""Runs the kernels of a file on the examples that it gives."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from torch_neuronx_nki.errors import NkiLaunchError, NkiValidationError
from torch_neuronx_nki.jit import Kernel, simulate
from torch_neuronx_nki.verifier.findings import Finding, Findings
from torch_neuronx_nki.verifier.verifier import Verifier, sink


@dataclass(frozen=True, slots=True)
class Example:
    """A kernel and what to call it with."""

    kernel: Kernel
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None

    def run(self, *, target: str | None = None, observers: tuple[Any, ...] = (), shapes_only: bool = False) -> Any:
        """Run it in the simulator, with meta tensors where only shapes are asked for."""
        args, kwargs = self.args, self.kwargs or {}
        if shapes_only:
            args, kwargs = tree_map(_without_data, (args, kwargs))
        return simulate(self.kernel, target=target, observers=observers)(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in one run of a kernel."""

    kernel: str
    findings: tuple[Finding, ...] = ()
    error: str = ""
    """Why it did not run to its end, where that is no finding."""
    ran: bool = True
    """False where the file has no example for it."""


def check_file(
    path: Path, *, kernel: str | None = None, target: str | None = None, shapes_only: bool = False
) -> list[Checked]:
    """Run the examples of ``path`` and return what each breaks, and which kernels have no example.

    Raises :class:`NkiLaunchError` where the file cannot be loaded or its examples are not of the form that
    :func:`examples_of` describes.
    """
    with loaded(path) as module:
        examples = examples_of(module)
        results = [
            check(example, target=target, shapes_only=shapes_only)
            for example in examples
            if kernel is None or example.kernel.func.__name__ == kernel
        ]
        covered = {id(example.kernel.func) for example in examples}
        for value in vars(module).values():
            if (
                isinstance(value, Kernel)
                and value.func.__module__ == module.__name__
                and id(value.func) not in covered
                and kernel in (None, value.func.__name__)
            ):
                covered.add(id(value.func))
                results.append(Checked(value.func.__name__, ran=False))
    return results


def check(example: Example, *, target: str | None = None, shapes_only: bool = False) -> Checked:
    """Run one example to its end, or to the first rule of an instruction that it breaks."""
    name = example.kernel.func.__name__
    findings = Findings(name)
    token = sink.set(findings)
    error = ""
    try:
        example.run(target=target, shapes_only=shapes_only)
    except NkiValidationError as broken:
        Verifier(findings=findings, kernel=name).add_error(broken)
    except Exception as failure:  # the kernel is the caller's: whatever it raises is its result
        error = f"{type(failure).__name__}: {failure}"
    finally:
        sink.reset(token)
    return Checked(name, tuple(findings.items), error)


@contextmanager
def loaded(path: Path) -> Iterator[Any]:
    """Import ``path`` as a module of its own, with its folder first among the places of imports.

    Raises :class:`NkiLaunchError` where that fails.
    """
    name = f"nki_checked_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise NkiLaunchError(f"{path} is no Python file. Give the path of one.")
    module = importlib.util.module_from_spec(spec)
    places = list(sys.path)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    try:
        try:
            spec.loader.exec_module(module)
        except Exception as failure:  # the file is the caller's
            raise NkiLaunchError(
                f"{path} cannot be loaded: {type(failure).__name__}: {failure}. Mend it, or what it imports."
            ) from failure
        yield module
    finally:
        sys.path[:] = places
        sys.modules.pop(name, None)


def examples_of(module: Any) -> list[Example]:
    """Return what ``EXAMPLES`` lists, or what ``example()`` returns: ``(kernel, args)`` or ``(kernel, args, kwargs)``.

    Raises :class:`NkiLaunchError` for something else.
    """
    given = module.EXAMPLES if hasattr(module, "EXAMPLES") else module.example() if hasattr(module, "example") else []
    if isinstance(given, tuple) and given and isinstance(given[0], Kernel):
        given = [given]
    examples = []
    for entry in given:
        match entry:
            case (Kernel() as kernel, tuple() as args):
                examples.append(Example(kernel, args))
            case (Kernel() as kernel, tuple() as args, dict() as kwargs):
                examples.append(Example(kernel, args, kwargs))
            case _:
                raise NkiLaunchError(
                    f"An example is {entry!r:.200}. Give (kernel, args) or (kernel, args, kwargs), args a tuple."
                )
    return examples


def _without_data(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, np.ndarray):
        from torch_neuronx_nki.dtypes import as_dtype, torch_dtype

        kind = as_dtype(value.dtype)
        return value if kind is None else torch.empty(value.shape, dtype=torch_dtype(kind), device="meta")
    return value
