"""How one entry of OpInfo is lowered and compared with the CPU, and what is written down about it."""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any

import torch

from tools.lowering._compat import op_db
from tools.lowering.one_graph import in_one_graph, through_dynamo
from tools.lowering.rounding import NARROW, is_rounding
from tools.lowering.tolerances import relative_to_largest, tolerance_of
from tools.opinfo.entries import ADAPTED, FACTORIES, UNINITIALIZED
from torch_neuronx.testing.compare import Comparison, CpuRunError, Values, compare_with_cpu
from torch_neuronx_compile.errors import GraphCompilationError

DTYPES = ("float32", "bfloat16", "float16", "int32", "int64", "bool")
BATCH = 16
"""Samples that are first tried as one program: most of a sample's time is the same for one and for many."""

ENOUGH = 8
"""Samples that do not agree after which an entry is left: it does not count as lowered, and the causes are known."""

_KEPT = 3


class Through(StrEnum):
    """What a sample is taken through."""

    AOT = "aot"
    """AOT Autograd: one program each way, or it counts as not lowered."""
    COMPILE = "compile"
    """`torch.compile` as users call it: what does not lower breaks the graph and runs in eager mode."""


@dataclass
class LoweringResult:
    """What became of the samples of one entry in one dtype."""

    entry: str
    dtype: str
    samples: int = 0
    """Samples that run on the CPU."""
    lowered: int = 0
    """Of those, samples that run as one program each way and give what the CPU gives."""
    rounded: int = 0
    """Of those, samples that differ by rounding only: see `tools.lowering.rounding`."""
    wrong: int = 0
    """Samples that run and give something else."""
    gradients: int = 0
    """Gradient tensors that were compared."""
    largest_difference: float = 0.0
    culprits: dict[str, str] = field(default_factory=dict)
    """Operators that have no lowering (or what tracing met), and why: the first few."""
    failures: list[str] = field(default_factory=list)
    """The first few samples that do not agree."""
    limit: int | None = None
    """At most so many samples were asked for; ``None`` for all."""
    left: bool = False
    """Whether samples were left out because enough others do not agree."""
    refused: int = 0
    """Samples, not among the others, that eager mode on the device refuses too; with ``Through.COMPILE`` only."""
    ended: str = ""
    """How the worker process ended, if the entry ended it."""


@dataclass(frozen=True)
class _Case:
    """One sample and its place among the entry's."""

    number: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    determined: Callable[[Any], Any]
    """Takes from a result what the operator determines; the identity but for entries in `_BY_SAMPLE`."""


def compare_entry(
    index: int,
    dtype_name: str,
    limit: int | None,
    batch: int = BATCH,
    through: Through = Through.AOT,
    only: int | None = None,
) -> LoweringResult:
    """Lower the samples of one entry in one dtype and compare; at most ``limit`` of them, or sample ``only``.

    ``batch`` samples are one program each way; where that does not agree its halves are, down to single samples.
    Each has a graph of its own where they go through ``torch.compile``.
    """
    entry: Any = op_db[index]
    dtype: torch.dtype = getattr(torch, dtype_name)
    result = LoweringResult(entry.formatted_name, dtype_name, limit=limit)
    if dtype not in entry.supported_dtypes("cpu"):
        return result
    gradient = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    random.seed(0)  # the suite chooses some arguments with it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = _cases(entry, dtype, gradient, limit, only)
        while chunk := list(islice(cases, batch if through is Through.AOT else 1)):
            _compare(entry, chunk, gradient, result, through)
            if result.samples - result.lowered >= ENOUGH:
                result.left = next(cases, None) is not None
                break
    return result


def _cases(entry: Any, dtype: torch.dtype, gradient: bool, limit: int | None, only: int | None) -> Iterator[_Case]:
    samples = entry.sample_inputs("cpu", dtype, requires_grad=gradient)
    for number, sample in enumerate(islice(samples, limit)):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        if entry.name in FACTORIES and not any(isinstance(leaf, torch.Tensor) for leaf in args):
            kwargs = {"device": "cpu", **kwargs}
        if only is None or number == only:
            yield _Case(number, args, kwargs, sample.output_process_fn_grad if entry.name in _BY_SAMPLE else _as_it_is)


def _compare(entry: Any, cases: Sequence[_Case], gradient: bool, result: LoweringResult, through: Through) -> None:
    run = partial(_run, entry, cases, gradient, result)
    if len(cases) == 1:
        _compare_one(run, entry, cases[0], result, through)
        return
    try:
        # What draws random numbers disagrees here, and is looked at sample by sample.
        found = run(through, Values.COMPARE)
    except Exception:  # of one of them: which one, and what of, is found out below
        middle = len(cases) // 2
        for half in (cases[:middle], cases[middle:]):
            if result.samples - result.lowered < ENOUGH:
                _compare(entry, half, gradient, result, through)
    else:
        _count(result, found, len(cases))


def _run(
    entry: Any,
    cases: Sequence[_Case],
    gradient: bool,
    result: LoweringResult,
    through: Through | None,
    values: Values,
) -> Comparison:
    """Compare ``cases`` with the CPU: through what is said, or in eager mode."""
    tolerance = tolerance_of(result.entry, result.dtype)
    bound = relative_to_largest(result.entry, result.dtype)
    functions = [_function(entry, case, result) for case in cases]

    def together(calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
        return [function(*args, **kwargs) for function, (args, kwargs) in zip(functions, calls, strict=True)]

    return compare_with_cpu(
        _TAKEN[through](together),
        [(case.args, case.kwargs) for case in cases],
        grad=gradient,
        values=Values.IGNORE if entry.name in UNINITIALIZED else values,
        rtol=0.0 if bound is not None else tolerance.rtol if tolerance else None,
        atol=bound if bound is not None else tolerance.atol if tolerance else None,
    )


def _function(entry: Any, case: _Case, result: LoweringResult) -> Callable[..., Any]:
    """Return what the entry calls, made comparable."""
    if entry.name in _BY_SAMPLE:
        return lambda *args, **kwargs: case.determined(entry.op(*args, **kwargs))
    scaled = relative_to_largest(result.entry, result.dtype) is not None
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]] = _ADAPTED.get(
        entry.name, _scaled if scaled else _as_it_is
    )
    return adapt(entry.op)


def _compare_one(
    run: Callable[[Through | None, Values], Comparison],
    entry: Any,
    case: _Case,
    result: LoweringResult,
    through: Through,
) -> None:
    number = case.number
    try:
        found = run(through, Values.DETECT)
    except CpuRunError:
        return
    except AssertionError as error:
        if "differs from the CPU" in str(error):
            if _only_rounded(entry, case, result, through):
                result.samples += 1
                result.lowered += 1
                result.rounded += 1
                return
            result.wrong += 1
            if len(result.failures) < _KEPT:
                result.failures.append(f"sample {number}: {_text(error)}")
        else:
            _blame(result, number, f"{type(error).__name__}", _text(error))
    except GraphCompilationError as error:
        _blame(result, number, error.op or "?", " ".join(error.reason.split()))
    except Exception as error:  # whatever tracing meets is the finding; the run goes on with the next sample
        if through is Through.COMPILE and _eager_fails(run):
            result.refused += 1
            return
        _blame(result, number, type(error).__name__, _text(error))
    else:
        _count(result, found, 1)
        return
    result.samples += 1


def _only_rounded(entry: Any, case: _Case, result: LoweringResult, through: Through) -> bool:
    dtype = getattr(torch, result.dtype)
    function = _function(entry, case, result)
    call = (case.args, case.kwargs)
    return dtype in NARROW and is_rounding(
        function, _TAKEN[through](function), call, dtype, any_of_equals=entry.name in _ORDERING
    )


def _eager_fails(run: Callable[[Through | None, Values], Comparison]) -> bool:
    try:
        run(None, Values.DETECT)
    except Exception:  # whatever it is: there is nothing that compiled code should have done better
        return True
    return False


def _count(result: LoweringResult, found: Comparison, samples: int) -> None:
    result.samples += samples
    result.lowered += samples
    result.gradients += found.gradients
    result.largest_difference = max(result.largest_difference, found.largest_difference)


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


def _without_signs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Take the absolute values of eigenvectors, as the suite does: their signs are nobody's to choose."""

    def call(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        values, vectors = function(*args, **kwargs)
        return values, vectors.abs()

    return call


def _any_order_of_equals(place: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the positions that a sort gives by the elements there: of equal ones any may come first.

    ``place`` is that of ``dim`` among the arguments. Nothing is replaced where the sort is said to be stable.
    """

    def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        found = function(self, *args, **kwargs)
        if kwargs.get("stable") or self.dim() == 0:
            return found
        dim = kwargs.get("dim", args[place] if len(args) > place else -1)
        if isinstance(found, torch.Tensor):
            return self.gather(dim, found)
        return found[0], self.gather(dim, found[1])

    return call


def _element_at_position(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the positions that ``kthvalue`` gives by the elements there: of equal ones any may be meant."""

    def call(self: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        value, position = function(self, k, dim, keepdim)
        if self.dim() == 0:
            return value, position
        element = self.gather(dim, position if keepdim else position.unsqueeze(dim))
        return value, element if keepdim else element.squeeze(dim)

    return call


def _statistics_as_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """Round the mean and the deviation that a norm returns: of narrow floats PyTorch has float32 but on the CPU."""

    def call(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        result, *statistics = function(*args, **kwargs)
        return result, *(one.to(result.dtype) for one in statistics)

    return call


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


_TAKEN: dict[Through | None, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    None: _as_it_is,
    Through.AOT: in_one_graph,
    Through.COMPILE: through_dynamo,
}

_BY_SAMPLE = frozenset({"svd", "linalg.svd"})
"""Entries of whose results each sample says what is determined, as the suite has it where it compares gradients.

The signs of singular vectors are nobody's to choose, nor are the vectors that a full matrix has beyond the values. Of
each matrix there are four samples: for `U`, `S`, `Vh` and the product `U @ Vh`.
"""

_ORDERING = frozenset({"sort", "msort", "topk", "kthvalue"})
"""Entries whose gradient goes to any one of equal elements."""

_ADAPTED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    **ADAPTED,
    "linalg.eigh": _without_signs,
    "sort": partial(_any_order_of_equals, 0),
    "argsort": partial(_any_order_of_equals, 0),
    "topk": partial(_any_order_of_equals, 1),
    "kthvalue": _element_at_position,
    **dict.fromkeys(
        ("native_layer_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"),
        _statistics_as_result,
    ),
}


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def to_json(result: LoweringResult) -> dict[str, Any]:
    """The result as one JSON object."""
    return asdict(result)
