"""How one entry of OpInfo is lowered and compared with the CPU, and what is written down about it."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from tools.lowering._compat import op_db
from tools.lowering.one_graph import in_one_graph
from tools.lowering.tolerances import relative_to_largest, tolerance_of
from tools.opinfo.entries import ADAPTED, FACTORIES, UNINITIALIZED
from torch_neuronx.testing.compare import CpuRunError, Values, compare_with_cpu
from torch_neuronx_compile.errors import GraphCompilationError

DTYPES = ("float32", "bfloat16", "float16", "int32", "int64", "bool")
_KEPT = 3


@dataclass
class LoweringResult:
    """What became of the samples of one entry in one dtype."""

    entry: str
    dtype: str
    samples: int = 0
    """Samples that run on the CPU."""
    lowered: int = 0
    """Of those, samples that run as one program each way and give what the CPU gives."""
    wrong: int = 0
    """Samples that run and give something else."""
    gradients: int = 0
    """Gradient tensors that were compared."""
    largest_difference: float = 0.0
    culprits: dict[str, str] = field(default_factory=dict)
    """Operators that have no lowering (or what tracing met), and why: the first few."""
    failures: list[str] = field(default_factory=list)
    """The first few samples that do not agree."""
    ended: str = ""
    """How the worker process ended, if the entry ended it."""


def compare_entry(index: int, dtype_name: str, limit: int | None, only: int | None = None) -> LoweringResult:
    """Lower the samples of one entry in one dtype and compare; at most ``limit`` of them, or sample ``only``."""
    entry: Any = op_db[index]
    dtype: torch.dtype = getattr(torch, dtype_name)
    result = LoweringResult(entry.formatted_name, dtype_name)
    if dtype not in entry.supported_dtypes("cpu"):
        return result
    gradient = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in enumerate(entry.sample_inputs("cpu", dtype, requires_grad=gradient)):
            if limit is not None and number >= limit:
                break
            if only is None or number == only:
                _compare_sample(entry, sample, gradient, result, number)
    return result


def _compare_sample(entry: Any, sample: Any, gradient: bool, result: LoweringResult, number: int) -> None:
    args, kwargs = (sample.input, *sample.args), sample.kwargs
    if entry.name in FACTORIES and not any(isinstance(leaf, torch.Tensor) for leaf in args):
        kwargs = {"device": "cpu", **kwargs}
    tolerance = tolerance_of(result.entry, result.dtype)
    bound = relative_to_largest(result.entry, result.dtype)
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]] = ADAPTED.get(
        entry.name, _as_it_is if bound is None else _scaled
    )
    try:
        found = compare_with_cpu(
            in_one_graph(adapt(entry.op)),
            *args,
            kwargs=kwargs,
            grad=gradient,
            values=Values.IGNORE if entry.name in UNINITIALIZED else Values.DETECT,
            rtol=0.0 if bound is not None else tolerance.rtol if tolerance else None,
            atol=bound if bound is not None else tolerance.atol if tolerance else None,
        )
    except CpuRunError:
        return
    except AssertionError as error:
        if "differs from the CPU" in str(error):
            result.wrong += 1
            if len(result.failures) < _KEPT:
                result.failures.append(f"sample {number}: {_text(error)}")
        else:
            _blame(result, number, f"{type(error).__name__}", _text(error))
    except GraphCompilationError as error:
        _blame(result, number, error.op or "?", " ".join(error.reason.split()))
    except Exception as error:  # whatever tracing meets is the finding; the run goes on with the next sample
        _blame(result, number, type(error).__name__, _text(error))
    else:
        result.lowered += 1
        result.gradients += found.gradients
        result.largest_difference = max(result.largest_difference, found.largest_difference)
    result.samples += 1


def _blame(result: LoweringResult, number: int, culprit: str, reason: str) -> None:
    if len(result.culprits) < _KEPT:
        result.culprits.setdefault(culprit, f"sample {number}: {reason}"[:300])


def _scaled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Divide each matrix of the result by its largest element, on the CPU and on the device."""

    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        found = function(*args, **kwargs)
        if found.numel() == 0:
            return found
        return found / found.detach().abs().amax((-2, -1), keepdim=True)

    return call


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def to_json(result: LoweringResult) -> dict[str, Any]:
    """The result as one JSON object."""
    return asdict(result)
