"""Worker: which ATen overloads, with which arguments, the samples of one OpInfo entry reach on the CPU.

Forward and backward run under a dispatch mode, below autograd and below the composites it decomposes, which is where a
backend's kernels sit.
"""

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tools.op_statuses._compat import TorchDispatchMode, op_db, tree_leaves
from tools.op_statuses.signatures import Call, NotDescribable, describe_call, op_name
from torch_neuronx.testing.isolation import serve

DTYPES = (torch.float32, torch.int64, torch.bool)
SAMPLES = 60
CALLS_PER_OVERLOAD = 6
LARGEST = 1 << 22


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not type its modes
    """Notes every call that reaches a backend."""

    def __init__(self) -> None:
        """Start with nothing noted."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, Call] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note the call and let it run."""
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        dtypes = ",".join(str(tensor.dtype) for tensor in tensors)
        key = (op_name(func), dtypes)
        if self._counts[key] < CALLS_PER_OVERLOAD and sum(tensor.numel() for tensor in tensors) < LARGEST:
            try:
                call = describe_call(func, args, kwargs)
            except NotDescribable:
                return func(*args, **kwargs)
            if call.digest not in self.calls:
                self.calls[call.digest] = call
                self._counts[key] += 1
        return func(*args, **kwargs)


def samples(entry: Any, dtype: torch.dtype) -> Iterator[Any]:
    """The first sample inputs of an OpInfo entry in a dtype it supports."""
    if dtype in entry.supported_dtypes("cpu"):
        wants_gradient = dtype.is_floating_point and entry.supports_autograd
        yield from itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=wants_gradient), SAMPLES)


def variants(entry: Any) -> list[Callable[..., Any]]:
    """The entry's function and, where it has one, the method that works in place."""
    return [entry.op, *([entry.inplace_variant] if entry.inplace_variant else [])]


def run(function: Callable[..., Any], sample: Any) -> None:
    """One forward and, where a result carries a gradient, one backward."""
    result = function(sample.input, *sample.args, **sample.kwargs)
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    inputs = [
        leaf
        for leaf in tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    if outputs and inputs:
        torch.autograd.grad(outputs, inputs, [torch.ones_like(output) for output in outputs], allow_unused=True)


def record(index: int) -> dict[str, Any]:
    """Run the samples of one entry; a sample that fails on the CPU itself leaves what it reached before."""
    entry = op_db[index]
    failures: Counter[str] = Counter()
    with Recorder() as recorder:
        for dtype in DTYPES:
            try:
                chosen = list(samples(entry, dtype))
            except Exception as error:  # a sample generator of PyTorch's own suite: counted, shown, and the next tried
                failures[f"samples: {type(error).__name__}"] += 1
                continue
            for sample, function in itertools.product(chosen, variants(entry)):
                try:
                    run(function, sample)
                except Exception as error:  # e.g. in place on a leaf: counted, shown, and the next tried
                    failures[type(error).__name__] += 1
    calls = [{"op": call.op, "args": call.args, "kwargs": call.kwargs} for call in recorder.calls.values()]
    return {"entry": entry.formatted_name, "calls": calls, "failures": dict(failures)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    serve(record)
