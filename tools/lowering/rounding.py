"""Tells rounding from other results, in dtypes of few digits.

The CPU rounds bfloat16 and float16 after every operator, a program where its compiler puts it, so that the two may be
further apart than the tolerances of the dtype. Both are compared with the same function in float64 on the CPU: what
is as near to that as the CPU's own result is has been rounded elsewhere, and nothing more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tools.lowering._compat import tree_flatten, tree_map

NARROW = (torch.bfloat16, torch.float16)

Call = tuple[Sequence[Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Found:
    """A result, an argument afterwards, or a gradient with what it is the gradient of."""

    tensor: Tensor
    of: Tensor | None = None

    def in_order(self) -> Tensor:
        """Return a gradient in the order of the elements that it belongs to, equal ones by their gradients."""
        assert self.of is not None
        by_gradient = self.tensor.flatten().argsort(stable=True)
        by_element = self.of.flatten()[by_gradient].argsort(stable=True)
        return self.tensor.flatten()[by_gradient[by_element]]


def is_rounding(
    on_host: Callable[..., Any],
    on_device: Callable[..., Any],
    call: Call,
    dtype: torch.dtype,
    *,
    any_of_equals: bool = False,
) -> bool:
    """Whether ``on_device`` is as near to float64 as ``on_host`` is, in results, gradients and arguments.

    The largest error of a tensor may be twice the CPU's and two units in the last place of the largest element.
    Elements of which the CPU makes no finite number, where there is one, are not compared. With ``any_of_equals``
    gradients may be exchanged between elements that are equal, and are not compared with float64.
    """
    try:
        host = _run(on_host, call, "cpu", dtype, dtype)
        device = _run(on_device, call, "neuron", dtype, dtype)
        truth = _run(on_host, call, "cpu", dtype, torch.float64)
    except Exception:  # whatever it is, nothing is shown about rounding
        return False
    if not len(host) == len(device) == len(truth):
        return False
    for one, other, best in zip(host, device, truth, strict=True):
        if any_of_equals and one.of is not None:
            near = one.tensor.shape == other.tensor.shape and _close(one.in_order(), other.in_order())
        else:
            near = _near(one.tensor, other.tensor, best.tensor)
        if not near:
            return False
    return True


def _run(
    function: Callable[..., Any], call: Call, device: str, narrow: torch.dtype, dtype: torch.dtype
) -> list[_Found]:
    """Return results, gradients and arguments on the CPU; floats of ``narrow`` are given as ``dtype``."""

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            moved = leaf.detach().to(device, dtype if leaf.dtype is narrow else leaf.dtype, copy=True)
            return moved.requires_grad_(leaf.requires_grad)
        if leaf is narrow:
            return dtype
        is_device = isinstance(leaf, torch.device) or leaf == "cpu"
        return torch.device(device) if isinstance(leaf, torch.device | str) and is_device else leaf

    args, kwargs = tree_map(copy, (tuple(call[0]), call[1]))
    torch.manual_seed(0)
    outputs = _tensors(function(*args, **kwargs))
    leaves = [leaf for leaf in _tensors((args, kwargs)) if leaf.requires_grad and leaf.is_leaf]
    roots = [output for output in outputs if output.requires_grad]
    gradients: Sequence[Tensor | None] = ()
    if leaves and roots:
        generator = torch.Generator().manual_seed(20)
        directions = [
            torch.randn(root.shape, generator=generator).to(narrow).to(root.device, root.dtype) for root in roots
        ]
        gradients = torch.autograd.grad(roots, leaves, directions, allow_unused=True)
    found = [_Found(output.detach().cpu()) for output in (*outputs, *_tensors((args, kwargs)))]
    for leaf, gradient in zip(leaves, gradients, strict=False):
        if gradient is not None:
            found.append(_Found(gradient.cpu(), leaf.detach().cpu()))
    return found


def _near(host: Tensor, device: Tensor, truth: Tensor) -> bool:
    if (host.dtype, host.shape) != (device.dtype, device.shape) or host.shape != truth.shape:
        return False
    if host.dtype not in NARROW:
        return _close(host, device)
    one, other, best = host.double(), device.double(), truth.double()
    finite = torch.isfinite(one) & torch.isfinite(best)
    if not _close(one[~best.isfinite()], other[~best.isfinite()]):
        return False
    if not finite.any():
        return True
    largest = float(best[finite].abs().max())
    allowed = 2 * float((one - best)[finite].abs().max()) + 2 * torch.finfo(host.dtype).eps * largest
    return bool(((other - best)[finite].abs() <= allowed).all())


def _close(host: Tensor, device: Tensor) -> bool:
    try:
        torch.testing.assert_close(device, host, equal_nan=True)
    except AssertionError:
        return False
    return True


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]
