"""Runs a function on the CPU and on a device and compares everything that can be seen of the two runs."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from torch_neuronx.testing._compat import tree_flatten_with_path, tree_map, tree_path

_CPU = torch.device("cpu")
# The chip computes these in float32 and complex64: the dtypes' own tolerances would ask for digits that are not there.
_NARROWED = {torch.float64: (1.3e-6, 1e-5), torch.complex128: (1.3e-6, 1e-5)}
_DIRECTION_SEED = 20  # of the gradients of outputs; the same in every run


class Values(Enum):
    """What to do with the elements of results; shapes, dtypes and devices are compared always."""

    COMPARE = "compare"
    IGNORE = "ignore"
    """For functions that draw random numbers or leave memory uninitialized."""
    DETECT = "detect"
    """Compare, and where elements differ ignore them if runs on the CPU with other seeds differ too."""


class CpuRunError(RuntimeError):
    """The function failed on the CPU, so there is nothing to compare with; the failure is the cause."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found equal."""

    outputs: int
    """Tensors that were returned."""
    gradients: int
    inputs: int
    """Tensor arguments, compared after the run: what the function wrote into them."""
    exact: int
    """Of all these, how many agree bit for bit; NaN equals NaN."""
    largest_difference: float
    """Largest absolute difference of two elements; 0.0 where values were not compared."""
    values_compared: bool


@dataclass(frozen=True, slots=True)
class _Run:
    result: Any
    inputs: Any
    gradients: tuple[tuple[str, torch.Tensor | None], ...]


def compare_with_cpu(
    function: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    device: str | torch.device = "neuron",
    dtype: torch.dtype | None = None,
    grad: bool = True,
    values: Values = Values.COMPARE,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> Comparison:
    """Call `function` with the same arguments on the CPU and on `device`, and compare.

    Compared are: the structure of the results; dtype, shape, device and elements of each returned tensor; other
    returned values; gradients of each argument (and, where `function` is a module, parameter) that requires one, for
    the same gradient of each output; and the elements of the arguments afterwards, so that writes in place count.

    Args:
        function: what to call; a module is copied to each device, and its parameters count as arguments.
        args: arguments, on the CPU; tensors anywhere inside them are copied to each device, as are
            `torch.device("cpu")` and `"cpu"`, which become `device`.
        kwargs: keyword arguments, likewise.
        device: the device to compare.
        dtype: what floating-point tensors among the arguments are converted to first.
        grad: compare gradients too.
        values: whether elements are compared.
        rtol: relative tolerance; by default that of :func:`torch.testing.assert_close` for the dtype, and that of
            float32 for float64 on a device, which computes it in float32.
        atol: absolute tolerance; both or neither must be given.
        seed: given to :func:`torch.manual_seed` before each run.

    Raises:
        AssertionError: they differ; the message says where and by how much.
        CpuRunError: the function fails on the CPU.
    """
    target = torch.device(device)
    host = _Copier(_CPU, dtype)
    prepared = host((args, dict(kwargs or {})))
    module = host(function) if isinstance(function, torch.nn.Module) else None
    try:
        expected = _run(module or function, _Copier(_CPU)(prepared), grad=grad, seed=seed)
    except Exception as error:
        raise CpuRunError(f"The function failed on the CPU: {_first_line(error)}") from error
    actual = _run(
        _Copier(target)(module) if module is not None else function, _Copier(target)(prepared), grad=grad, seed=seed
    )
    comparer = _Comparer(target, values is not Values.IGNORE, rtol, atol)
    problems = list(comparer.differences(expected, actual))
    if problems and values is Values.DETECT and _depends_on_seed(module or function, prepared, expected, grad, seed):
        comparer = _Comparer(target, False)
        problems = list(comparer.differences(expected, actual))
    if problems:
        name = getattr(function, "__name__", type(function).__name__)
        listed = "\n".join(f"  {line}" for line in problems)
        raise AssertionError(f"{name} on {target} differs from the CPU:\n{listed}")
    return Comparison(
        outputs=comparer.counts["output"],
        gradients=comparer.counts["gradient"],
        inputs=comparer.counts["input"],
        exact=comparer.exact,
        largest_difference=comparer.largest,
        values_compared=comparer.elements,
    )


class _Copier:
    """Copies tensors and modules to a device, each once: arguments that are one object stay one object."""

    def __init__(self, device: torch.device, dtype: torch.dtype | None = None) -> None:
        self._device = device
        self._dtype = dtype
        self._copies: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        return tree_map(self._one, value)

    def _one(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor | torch.nn.Module):
            # The original is kept with its copy: an id may be given out again once its object is gone.
            if id(leaf) not in self._copies:
                self._copies[id(leaf)] = (leaf, self._copy(leaf))
            return self._copies[id(leaf)][1]
        is_device = isinstance(leaf, torch.device) or leaf == "cpu"
        return self._device if isinstance(leaf, torch.device | str) and is_device else leaf

    def _copy(self, leaf: torch.Tensor | torch.nn.Module) -> torch.Tensor | torch.nn.Module:
        if isinstance(leaf, torch.nn.Module):
            return copy.deepcopy(leaf).to(self._device, self._dtype)
        dtype = self._dtype if self._dtype is not None and leaf.is_floating_point() else leaf.dtype
        moved = leaf.detach().to(self._device, dtype)
        if self._device == leaf.device and dtype == leaf.dtype:
            moved = moved.clone()
        return moved.requires_grad_(leaf.requires_grad)


def _run(function: Callable[..., Any], call: tuple[Sequence[Any], Mapping[str, Any]], *, grad: bool, seed: int) -> _Run:
    args, kwargs = call
    torch.manual_seed(seed)
    result = function(*args, **kwargs)
    wanted = [(path, leaf) for path, leaf in _tensors(call) if leaf.requires_grad and leaf.is_leaf]
    if isinstance(function, torch.nn.Module):
        wanted += [(f"parameter {name}", value) for name, value in function.named_parameters() if value.requires_grad]
    outputs = [leaf for _, leaf in _tensors(result) if leaf.requires_grad]
    gradients: Sequence[torch.Tensor | None] = []
    if grad and wanted and outputs:
        generator = torch.Generator().manual_seed(_DIRECTION_SEED)
        directions = [_direction(output, generator) for output in outputs]
        gradients = torch.autograd.grad(outputs, [leaf for _, leaf in wanted], directions, allow_unused=True)
    pairs = tuple((path, gradient) for (path, _), gradient in zip(wanted, gradients, strict=False))
    return _Run(result, call, pairs)


def _direction(output: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A gradient for an output: the same elements on every device."""
    drawn = torch.randn(output.shape, generator=generator, dtype=torch.complex64 if output.is_complex() else None)
    return drawn.to(output.device, output.dtype)


def _depends_on_seed(function: Callable[..., Any], prepared: Any, expected: _Run, grad: bool, seed: int) -> bool:
    # Several seeds: a draw of a few small numbers may come out the same twice.
    runs = (_run(function, _Copier(_CPU)(prepared), grad=grad, seed=seed + other) for other in range(1, 9))
    return any(any(_Comparer(_CPU, True).differences(expected, run)) for run in runs)


@dataclass
class _Comparer:
    """Compares two runs and counts what it compared."""

    device: torch.device
    elements: bool
    rtol: float | None = None
    atol: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    exact: int = 0
    largest: float = 0.0

    def differences(self, expected: _Run, actual: _Run) -> Iterator[str]:
        """What differs, a line each."""
        yield from self._trees("output", expected.result, actual.result)
        yield from self._trees("input", expected.inputs, actual.inputs)
        for (path, left), (_, right) in zip(expected.gradients, actual.gradients, strict=True):
            if left is not None and right is not None:
                yield from self._tensors("gradient", f"gradient of {path}", left, right)
            elif left is not right:
                yield f"gradient of {path}: there is {'none' if right is None else 'one'}, unlike on the CPU"

    def _trees(self, kind: str, expected: Any, actual: Any) -> Iterator[str]:
        left, left_spec = tree_flatten_with_path(expected)
        right, right_spec = tree_flatten_with_path(actual)
        if left_spec != right_spec:
            yield f"{kind}: the structure is {right_spec}, on the CPU {left_spec}"
            return
        for (path, one), (_, other) in zip(left, right, strict=True):
            where = f"{kind} {tree_path(path)}".rstrip()
            if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
                yield from self._tensors(kind, where, one, other)
            elif self.elements and not _equal_values(one, other):
                yield f"{where}: {other!r}, on the CPU {one!r}"

    def _tensors(self, kind: str, where: str, expected: torch.Tensor, actual: torch.Tensor) -> Iterator[str]:
        self.counts[kind] += 1
        if actual.device.type != self.device.type:
            yield f"{where}: is on {actual.device}"
        elif (actual.dtype, actual.shape, actual.layout) != (expected.dtype, expected.shape, expected.layout):
            yield f"{where}: {_kind(actual)}, on the CPU {_kind(expected)}"
        elif self.elements:
            yield from self._elements(where, _plain(expected), _plain(actual))

    def _elements(self, where: str, expected: torch.Tensor, actual: torch.Tensor) -> Iterator[str]:
        rtol, atol = self.rtol, self.atol
        if rtol is None and atol is None and self.device != _CPU:
            rtol, atol = _NARROWED.get(expected.dtype, (None, None))
        try:
            torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        except AssertionError:
            try:
                torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
            except AssertionError as error:
                yield f"{where} ({_kind(expected)}): {' '.join(str(error).split())}"
            else:
                self.largest = max(self.largest, _distance(expected, actual))
        else:
            self.exact += 1


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The elements on the CPU, without lazy conjugation, quantization or a sparse layout."""
    tensor = tensor.detach().cpu()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    return tensor.resolve_conj().resolve_neg()


def _distance(expected: torch.Tensor, actual: torch.Tensor) -> float:
    finite = torch.isfinite(expected) & torch.isfinite(actual)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    differences = (expected.to(wide) - actual.to(wide))[finite].abs()
    return float(differences.max()) if differences.numel() else 0.0


def _equal_values(expected: Any, actual: Any) -> bool:
    """Whether values that are no tensors are equal; numbers within the tolerance of their kind."""
    if isinstance(expected, torch.Tensor) or isinstance(actual, torch.Tensor):
        return False
    if isinstance(expected, torch.device | torch.Generator | torch.nn.Module):
        return True
    if isinstance(expected, float | complex) and type(expected) is type(actual):
        return bool(torch.isclose(torch.tensor(expected), torch.tensor(actual), equal_nan=True))
    return expected is actual or bool(expected == actual)


def _tensors(tree: Any) -> list[tuple[str, torch.Tensor]]:
    leaves, _ = tree_flatten_with_path(tree)
    return [(tree_path(path), leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]


def _kind(tensor: torch.Tensor) -> str:
    layout = "" if tensor.layout is torch.strided else f" {str(tensor.layout).removeprefix('torch.')}"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}{layout}"


def _first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"
