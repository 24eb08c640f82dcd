"""The entries of OpInfo and how one of them is compared with the CPU."""

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from tools.opinfo._compat import op_db, tree_map
from tools.opinfo.tolerances import TOLERANCES
from torch_neuronx.testing.compare import CpuRunError, Values, compare_with_cpu

DTYPES = ("float32", "int64", "bool", "bfloat16", "float16")

UNINITIALIZED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})
"""Entries whose result is memory as it was found."""

FACTORIES = frozenset({"arange", "linspace", "logspace"})
"""Entries with samples that leave the device to the default: these are given one, or they would not touch it."""

_REASONS = 3


@dataclass
class EntryResult:
    """What became of the samples of one entry in one dtype."""

    entry: str
    dtype: str
    samples: int = 0
    failed_on_cpu: int = 0
    passed: int = 0
    refused: int = 0
    """Samples that the device refused with `UnsupportedOperatorError`, as the operator table says it does."""
    without_values: int = 0
    """Of those that passed, samples whose result depends on the seed or is uninitialized."""
    exact: int = 0
    """Of those that passed, samples of which every tensor agrees bit for bit."""
    gradients: int = 0
    """Gradient tensors that were compared."""
    largest_difference: float = 0.0
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    ended: str = ""
    """How the worker process ended, if the entry ended it."""


def entry_names() -> list[str]:
    """The names of all entries, in the order of the suite."""
    return [entry.formatted_name for entry in op_db]


def load_device(device: str, module: str | None = None) -> None:
    """Make the device known.

    Args:
        device: its name; `cpu` compares the CPU with itself.
        module: what to import first, for a device that PyTorch does not load by itself.
    """
    if module:
        importlib.import_module(module)
    torch.empty(0, device=device)


def compare_entry(index: int, dtype_name: str, device: str, only_sample: int | None = None) -> EntryResult:
    """Compare every sample of one entry in one dtype."""
    entry: Any = op_db[index]
    dtype: torch.dtype = getattr(torch, dtype_name)
    result = EntryResult(entry.formatted_name, dtype_name)
    if dtype not in entry.supported_dtypes("cpu"):
        return result
    wants_gradient = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    values = Values.IGNORE if entry.name in UNINITIALIZED else Values.DETECT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in enumerate(_samples(entry, dtype, wants_gradient, result)):
            if only_sample is None or number == only_sample:
                result.samples += 1
                _compare_sample(entry, sample, device, wants_gradient, values, result, number)
    return result


def _samples(entry: Any, dtype: torch.dtype, wants_gradient: bool, result: EntryResult) -> Iterator[Any]:
    torch.manual_seed(0)
    try:
        yield from entry.sample_inputs("cpu", dtype, requires_grad=wants_gradient)
    except Exception as error:  # the suite's own generator, on the CPU: counted like a sample that fails there
        result.samples += 1
        result.failed_on_cpu += 1
        result.failures.append(f"samples: {_text(error)}")


def _compare_sample(
    entry: Any, sample: Any, device: str, wants_gradient: bool, values: Values, result: EntryResult, number: int
) -> None:
    args, kwargs = (sample.input, *sample.args), sample.kwargs
    if entry.name in FACTORIES and not any(isinstance(leaf, torch.Tensor) for leaf in args):
        kwargs = {"device": "cpu", **kwargs}
    tolerance = TOLERANCES.get((entry.name, result.dtype))
    rtol, atol = (tolerance.rtol, tolerance.atol) if tolerance else (None, None)
    try:
        found = compare_with_cpu(
            ADAPTED.get(entry.name, _as_it_is)(entry.op),
            *args,
            kwargs=kwargs,
            device=device,
            grad=wants_gradient,
            values=values,
            rtol=rtol,
            atol=atol,
        )
    except CpuRunError:
        result.failed_on_cpu += 1
    except Exception as error:  # whatever the device raises is the finding; the run goes on with the next sample
        if type(error).__name__ == "UnsupportedOperatorError":
            result.refused += 1
        else:
            result.failed += 1
        text = f"sample {number}: {_text(error)}"
        if len(result.failures) < _REASONS:
            result.failures.append(text)
    else:
        result.passed += 1
        result.without_values += not found.values_compared
        result.exact += found.values_compared and found.exact == found.outputs + found.gradients + found.inputs
        result.gradients += found.gradients
        result.largest_difference = max(result.largest_difference, found.largest_difference)


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _host_indices(function: Callable[..., Any]) -> Callable[..., Any]:
    """`tensor_split` takes its indices on the CPU, whatever the device."""

    def call(first: Any, *rest: Any, **kwargs: Any) -> Any:
        rest, kwargs = tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf, (rest, kwargs))
        return function(first, *rest, **kwargs)

    return call


def _policy_of_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """`linear_cross_entropy` chooses its arithmetic by the name of the device: here the CPU's choice on both."""

    def call(*args: Any, options: Any = None, **kwargs: Any) -> Any:
        if options is not None and options.acc_policy == "auto":
            options = replace(options, acc_policy="accurate")
        if options is not None and options.chunking_method == "auto" and options.batch_chunk_size is None:
            options = replace(options, chunking_method="aspect_ratio")
        return function(*args, options=options, **kwargs)

    return call


ADAPTED: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "tensor_split": _host_indices,
    "nn.functional.linear_cross_entropy": _policy_of_cpu,
}
"""Entries in which PyTorch itself treats devices differently, by name."""


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


def to_json(result: EntryResult) -> dict[str, Any]:
    """The result as one JSON object."""
    return asdict(result)
