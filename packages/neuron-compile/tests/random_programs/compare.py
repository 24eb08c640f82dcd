"""Compares a program's run on the CPU with one on the device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .program import Program, make_inputs, namespace

_TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float16: 6e-3}


@dataclass(slots=True)
class _Run:
    """One program on the CPU, and the arguments for the device."""

    program: Program
    host: list[Tensor]
    device: list[Tensor]
    expected: tuple[Tensor, ...]
    asks: bool
    """Whether there are gradients."""


def disagreement(program: Program, compile_function: Callable[[Callable[..., Any]], Callable[..., Any]]) -> str | None:
    """Run ``program`` on the CPU and compiled on the device; return what differs, or ``None``.

    Compared are results, arguments afterwards, and gradients. Tolerances follow the narrowest floating dtype in the
    program and the largest magnitude that it meets: sums may be taken in another order.
    """
    run = _on_host(program)
    if run is None:
        return None
    actual = compile_function(program.function())(*run.device)
    found = _forward(run, actual)
    if found is None and run.asks:
        backward(actual)
        found = _gradients(run)
    return found and f"{found}\n{program.source}{program.inputs}"


def all_agree(
    programs: Sequence[Program], compile_function: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> bool:
    """Whether programs agree that are compiled as one function, which takes less time than one after the other."""
    runs = [run for run in map(_on_host, programs) if run is not None]
    functions = [run.program.function() for run in runs]

    def together(arguments: Sequence[Sequence[Tensor]]) -> list[tuple[Tensor, ...]]:
        return [function(*given) for function, given in zip(functions, arguments, strict=True)]

    actual = compile_function(together)([run.device for run in runs])
    if any(_forward(run, results) for run, results in zip(runs, actual, strict=True)):
        return False
    asking = [(run, results) for run, results in zip(runs, actual, strict=True) if run.asks]
    backward([result for _, results in asking for result in results])
    return not any(_gradients(run) for run, _ in asking)


def _on_host(program: Program) -> _Run | None:
    """Run ``program`` on the CPU; ``None`` if eager mode has no gradient of it, and so has no compiled graph."""
    host, device = make_inputs(program.inputs), make_inputs(program.inputs, "neuron")
    expected = program.function()(*host)
    try:
        asks = backward(expected)
    except RuntimeError:  # something was written over since
        return None
    return _Run(program, host, device, expected, asks)


def _forward(run: _Run, actual: Sequence[Tensor]) -> str | None:
    relative, scale = _tolerance(run.program)
    for name, one, other in zip(run.program.outputs, run.expected, actual, strict=True):
        found = _difference(one, other, relative, scale)
        if found:
            return f"{name}: {found}"
        if one.requires_grad != other.requires_grad:
            return f"{name}: requires_grad is {other.requires_grad}"
    for i, (one, other) in enumerate(zip(run.host, run.device, strict=True)):
        found = _difference(one, other, relative, scale)
        if found:
            return f"v{i} afterwards: {found}"
    return None


def _gradients(run: _Run) -> str | None:
    relative, scale = _tolerance(run.program)
    for i, (one, other) in enumerate(zip(run.host, run.device, strict=True)):
        if not (one.requires_grad and one.is_floating_point()):  # a write of a gradient's tensor makes bools ask too
            continue
        # Of an output that the loss leaves out, a compiled graph takes zeros where eager mode takes nothing.
        expected, actual = (torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in (one, other))
        size = max(scale, float(expected.abs().nan_to_num(0.0, 0.0, 0.0).max()) if expected.numel() else 0.0)
        found = _difference(expected, actual, 10 * relative, size)
        if found:
            return f"the gradient of v{i}: {found}"
    return None


def backward(outputs: Sequence[Tensor]) -> bool:
    """Take the gradients of the sum of all elements; return whether there are any."""
    roots = [output.sum() for output in outputs if output.requires_grad]
    if roots:
        sum(roots[1:], roots[0]).backward()  # type: ignore[no-untyped-call]
    return bool(roots)


def _tolerance(program: Program) -> tuple[float, float]:
    relative, scale = _TOLERANCE[torch.float32], 1.0
    names: dict[str, Any] = namespace()
    for i, tensor in enumerate(make_inputs(program.inputs, grad=False)):
        names[f"v{i}"] = tensor
    for statement in ("", *program.statements):
        exec(statement, names)
        for value in names.values():
            if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
                relative = max(relative, _TOLERANCE.get(value.dtype, 0.0))
                finite = value.float().abs().nan_to_num(0.0, 0.0, 0.0)
                scale = max(scale, float(finite.max()))
    return relative, scale


def _difference(expected: Tensor, actual: Tensor, relative: float, scale: float) -> str | None:
    if actual.device.type != "neuron":
        return f"is on {actual.device}"
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"is {actual.dtype} {tuple(actual.shape)}, not {expected.dtype} {tuple(expected.shape)}"
    one, other = expected.detach(), actual.detach().cpu()
    if not one.is_floating_point():
        return None if torch.equal(one, other) else f"is {other.tolist()}, not {one.tolist()}"
    try:
        torch.testing.assert_close(other.float(), one.float(), rtol=relative, atol=relative * scale, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return None
