"""Random programs over tensors: what they compute is compared between the CPU and a compiled graph.

A program is a list of statements over typed values. Values carry whether they are *exact*: the same on every machine,
bit for bit. Only those reach statements whose result jumps (comparisons, rounding, sorting, conversion to integers),
where one unit in the last place would change everything after it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int32, torch.int64)
MAX_ELEMENTS = 4096


class Layout(Enum):
    """How an input lies in memory."""

    CONTIGUOUS = "contiguous"
    TRANSPOSED = "transposed"
    STRIDED = "strided"
    EXPANDED = "expanded"


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a program."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: Layout
    requires_grad: bool

    def make(self, generator: torch.Generator) -> Tensor:
        """Return a CPU tensor of this kind."""
        shape = list(self.shape)
        match self.layout:
            case Layout.TRANSPOSED if len(shape) >= 2:
                return self._values([*shape[:-2], shape[-1], shape[-2]], generator).transpose(-1, -2)
            case Layout.STRIDED if shape:
                return self._values([*shape[:-1], 2 * shape[-1] + 1], generator)[..., 1::2]
            case Layout.EXPANDED if shape:
                return self._values([1, *shape[1:]], generator).expand(shape)
        return self._values(shape, generator)

    def _values(self, shape: list[int], generator: torch.Generator) -> Tensor:
        if self.dtype is torch.bool:
            return torch.randint(0, 2, shape, generator=generator).bool()
        if self.dtype in INTEGERS:
            return torch.randint(-8, 9, shape, generator=generator).to(self.dtype)
        return torch.randn(shape, generator=generator).to(self.dtype)


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs, statements and outputs, as Python text that names values ``v0``, ``v1``, …"""

    inputs: tuple[Input, ...]
    statements: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def source(self) -> str:
        """The program as the source of a function ``program``."""
        arguments = ", ".join(f"v{i}" for i in range(len(self.inputs)))
        body = "".join(f"    {statement}\n" for statement in self.statements)
        return f"def program({arguments}):\n{body}    return ({', '.join(self.outputs)},)\n"

    def function(self) -> Callable[..., tuple[Tensor, ...]]:
        """Return the program as a function; every call gives another one, so that each is compiled anew."""
        names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.source, "<random program>", "exec"), names)
        function: Callable[..., tuple[Tensor, ...]] = names["program"]
        return function


@dataclass(slots=True)
class _Value:
    name: str
    example: Tensor
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.example.shape)

    @property
    def floating(self) -> bool:
        return self.example.is_floating_point()


@dataclass(slots=True)
class _Builder:
    draw: Any
    values: list[_Value] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def add(self, expression: str, *, exact: bool) -> None:
        """Add a statement unless its result is too large or the CPU refuses it."""
        names: dict[str, Any] = {value.name: value.example for value in self.values}
        try:
            result = eval(expression, {"torch": torch, "F": torch.nn.functional}, names)
        except (RuntimeError, IndexError, TypeError, NotImplementedError):
            return
        if result.numel() > MAX_ELEMENTS or result.is_complex():
            return
        name = f"v{len(self.values)}"
        self.values.append(_Value(name, result, exact))
        self.statements.append(f"{name} = {expression}")

    def pick(self, accept: Callable[[_Value], bool] = lambda value: True) -> _Value | None:
        found = [value for value in self.values if accept(value)]
        return self.draw(st.sampled_from(found)) if found else None

    def one(self, *choices: str) -> str:
        return str(self.draw(st.sampled_from(choices)))

    def axis(self, value: _Value) -> int:
        rank = len(value.shape)
        return int(self.draw(st.integers(-rank, rank - 1))) if rank else 0


def _smooth(build: _Builder) -> None:
    x = build.pick(lambda value: value.floating)
    if x is not None:
        form = build.one(
            "torch.tanh({x})", "torch.sigmoid({x})", "torch.sin({x})", "torch.cos({x})", "F.gelu({x})", "F.silu({x})",
            "torch.exp(-{x}.abs())", "torch.sqrt({x}.abs() + 1)", "torch.log1p({x}.abs())",
            "torch.rsqrt({x}.abs() + 1)", "torch.reciprocal({x}.abs() + 1)",
            "F.softplus({x})", "torch.erf({x})", "{x} * 0.5 + 1", "{x} / 3",
            "F.elu({x})", "torch.atan({x})", "torch.expm1(-{x}.abs())", "F.mish({x})",
            "F.gelu({x}, approximate='tanh')",
        )  # fmt: skip
        build.add(form.format(x=x.name), exact=False)


def _exact_unary(build: _Builder) -> None:
    x = build.pick(lambda value: value.example.dtype is not torch.bool)
    if x is not None:
        form = build.one("-{x}", "{x}.abs()", "F.relu({x})", "{x}.clamp(-1, 1)", "{x}.clamp(min=0)", "torch.sign({x})")
        if "sign" in form and not x.exact:
            return
        build.add(form.format(x=x.name), exact=x.exact)


def _binary(build: _Builder) -> None:
    x, y = build.pick(), build.pick()
    assert x is not None
    assert y is not None
    form = build.one("{x} + {y}", "{x} * {y}", "torch.maximum({x}, {y})", "torch.minimum({x}, {y})", "{x} - {y}")
    exact = x.exact and y.exact and (form.startswith("torch") or not (x.floating or y.floating))
    build.add(form.format(x=x.name, y=y.name), exact=exact)


def _divide(build: _Builder) -> None:
    x, y = build.pick(), build.pick(lambda value: value.floating)
    if x is not None and y is not None:
        build.add(f"{x.name} / ({y.name}.abs() + 1)", exact=False)


def _compare(build: _Builder) -> None:
    x, y = build.pick(lambda value: value.exact), build.pick(lambda value: value.exact)
    if x is not None and y is not None:
        build.add(f"{x.name} {build.one('<', '<=', '==', '!=', '>', '>=')} {y.name}", exact=True)


def _round(build: _Builder) -> None:
    x = build.pick(lambda value: value.exact and value.floating)
    if x is not None:
        build.add(build.one("{x}.floor()", "{x}.ceil()", "{x}.round()", "{x}.trunc()").format(x=x.name), exact=True)


def _integer(build: _Builder) -> None:
    x, y = (build.pick(lambda value: not value.floating) for _ in range(2))
    if x is not None and y is not None:
        form = build.one("{x} & {y}", "{x} | {y}", "{x} ^ {y}", "{x} // ({y}.abs() + 1)", "{x} % ({y}.abs() + 1)")
        build.add(form.format(x=x.name, y=y.name), exact=True)


def _where(build: _Builder) -> None:
    condition = build.pick(lambda value: value.example.dtype is torch.bool)
    x, y = build.pick(), build.pick()
    if condition is not None and x is not None and y is not None:
        form = build.one("torch.where({c}, {x}, {y})", "{x}.masked_fill({c}, 2)", "{x}.masked_fill({c}, float('-inf'))")
        if "inf" in form:
            form = f"torch.softmax({form}, -1).nan_to_num()" if x.floating and x.shape else "{x} + 0"
        exact = x.exact and y.exact and "softmax" not in form
        build.add(form.format(c=condition.name, x=x.name, y=y.name), exact=exact)


def _reduce(build: _Builder) -> None:
    x = build.pick(lambda value: bool(value.shape))
    if x is None:
        return
    axis, keep = build.axis(x), build.draw(st.booleans())
    if x.floating:
        form = build.one("sum", "mean", "amax", "amin", "var", "logsumexp", "norm", "prod", "std")
        if form in ("var", "std") and x.shape[axis] < 3:
            return
        extra = "dim" if form in ("amax", "amin", "norm", "logsumexp", "sum", "mean", "var", "std", "prod") else ""
        build.add(f"{x.name}.{form}({extra}={axis}, keepdim={keep})", exact=x.exact and form in ("amax", "amin"))
    elif x.example.dtype is torch.bool:
        build.add(f"{x.name}.{build.one('any', 'all', 'sum')}(dim={axis}, keepdim={keep})", exact=True)
    else:
        build.add(f"{x.name}.{build.one('sum', 'amax', 'amin')}(dim={axis}, keepdim={keep})", exact=True)


def _select_extreme(build: _Builder) -> None:
    x = build.pick(lambda value: value.exact and bool(value.shape) and value.example.dtype is not torch.bool)
    if x is None:
        return
    axis = build.axis(x)
    form = build.one(
        "argmax(dim={d})", "max(dim={d}).values", "min(dim={d}).values", "sort(dim={d}, stable=True).values",
        "topk(1, dim={d}).values", "cummax(dim={d}).values", "argsort(dim={d}, stable=True)",
    )  # fmt: skip
    build.add(f"{x.name}.{form.format(d=axis)}", exact=True)


def _normalise(build: _Builder) -> None:
    x = build.pick(lambda value: value.floating and bool(value.shape) and value.shape[-1] > 1)
    if x is not None:
        axis, last = build.axis(x), x.shape[-1]
        form = build.one(
            f"torch.softmax({{x}}, {axis})", f"torch.log_softmax({{x}}, {axis})", f"F.layer_norm({{x}}, ({last},))",
            f"F.rms_norm({{x}}, ({last},))", f"{{x}}.cumsum({axis})", f"F.normalize({{x}}, dim={axis})",
        )  # fmt: skip
        build.add(form.format(x=x.name), exact=False)


def _view(build: _Builder) -> None:
    x = build.pick(lambda value: bool(value.shape))
    if x is None:
        return
    rank, axis = len(x.shape), build.axis(x)
    extent = x.shape[axis]
    other = build.axis(x)
    start = int(build.draw(st.integers(0, max(extent - 1, 0))))
    choices = [
        f"{x.name}.transpose({axis}, {other})", f"{x.name}.flatten()", f"{x.name}.unsqueeze({axis})",
        f"{x.name}.flip({axis})", f"{x.name}.roll(1, {axis})", f"{x.name}.reshape(-1)", f"{x.name}[None]",
        f"torch.narrow({x.name}, {axis}, {start}, {extent - start})", f"{x.name}.movedim({axis}, {other})",
        f"{x.name}.repeat_interleave(2, {axis})", f"{x.name}[..., ::2]", f"{x.name}.squeeze({axis})",
        f"{x.name}.unfold({axis}, 1, 1)", f"{x.name}.contiguous()", f"{x.name}.clone()",
    ]  # fmt: skip
    if extent:
        choices.append(f"{x.name}.select({axis}, {start})")
    if rank >= 2:
        choices += [f"{x.name}.mT", f"{x.name}.tril()", f"{x.name}.triu(1)", f"{x.name}.diagonal(0, -2, -1)"]
    if rank <= 3 and x.example.dtype is not torch.bool:
        choices.append(f"F.pad({x.name}, (1, 2), value=1)")
    build.add(build.one(*choices), exact=x.exact)


def _join(build: _Builder) -> None:
    x = build.pick()
    assert x is not None
    y = build.pick(lambda value: value.shape == x.shape and value.example.dtype == x.example.dtype)
    assert y is not None
    function = build.one("cat", "stack") if x.shape else "stack"
    build.add(f"torch.{function}(({x.name}, {y.name}), {build.axis(x)})", exact=x.exact and y.exact)


def _matmul(build: _Builder) -> None:
    x = build.pick(lambda value: value.floating and len(value.shape) >= 1)
    if x is None:
        return
    y = build.pick(
        lambda value: value.example.dtype == x.example.dtype and bool(value.shape) and value.shape[-1] == x.shape[-1]
    )
    assert y is not None
    build.add(f"{x.name} @ {y.name}.mT" if len(y.shape) >= 2 else f"{x.name} @ {y.name}", exact=False)


def _index(build: _Builder) -> None:
    x = build.pick(lambda value: bool(value.shape) and value.shape[0] > 0)
    index = build.pick(lambda value: value.example.dtype is torch.int64)
    if x is None or index is None:
        return
    safe = f"({index.name} % {x.shape[0]})"
    form = build.one("{x}[{i}]", "{x}.index_select(0, {i}.flatten())", "{x}.take({i} % max({x}.numel(), 1))")
    build.add(form.format(x=x.name, i=safe), exact=x.exact)


def _convert(build: _Builder) -> None:
    x = build.pick()
    assert x is not None
    dtype = build.draw(st.sampled_from((*FLOATS, *INTEGERS, torch.bool)))
    if not x.exact and not dtype.is_floating_point:
        return
    if x.floating and not dtype.is_floating_point and not math.isfinite(float(x.example.float().abs().sum())):
        return
    build.add(f"{x.name}.to({dtype})", exact=x.exact)


def _in_place(build: _Builder) -> None:
    x = build.pick(lambda value: value.floating)
    if x is not None:
        build.add(f"{x.name}.clone().mul_(2).add_(1)", exact=False)


_STATEMENTS: tuple[Callable[[_Builder], None], ...] = (
    _smooth, _exact_unary, _binary, _divide, _compare, _round, _integer, _where, _reduce, _select_extreme, _normalise,
    _view, _view, _join, _matmul, _index, _convert, _in_place,
)  # fmt: skip


@st.composite
def programs(draw: Any, *, gradients: bool = False) -> Program:
    """Draw a program; with ``gradients`` all floating inputs are float32 and ask for one."""
    inputs = []
    build = _Builder(draw)
    generator = torch.Generator().manual_seed(0)
    common = draw(st.lists(st.integers(1, 5), min_size=0, max_size=3))
    for _ in range(draw(st.integers(1, 3))):
        shape = common if draw(st.booleans()) else draw(st.lists(st.sampled_from((0, 1, 2, 3, 5, 8)), max_size=4))
        dtype = draw(st.sampled_from((torch.float32,) if gradients else (*FLOATS, *INTEGERS, torch.bool)))
        layout = draw(st.sampled_from(Layout))
        found = Input(tuple(shape), dtype, layout, gradients and dtype is torch.float32)
        build.values.append(_Value(f"v{len(inputs)}", found.make(generator), exact=True))
        inputs.append(found)
    for _ in range(draw(st.integers(1, 10))):
        draw(st.sampled_from(_STATEMENTS))(build)
    computed = [value.name for value in build.values[len(inputs) :]] or ["v0 + 1"]
    outputs = draw(st.lists(st.sampled_from(computed), max_size=2, unique=True))
    if computed[-1] not in outputs:
        outputs.append(computed[-1])
    return Program(tuple(inputs), tuple(build.statements), tuple(outputs))


_TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float16: 6e-3}


def disagreement(program: Program, compile_function: Callable[[Callable[..., Any]], Callable[..., Any]]) -> str | None:
    """Run ``program`` on the CPU and compiled on the device; return what differs, or ``None``.

    Tolerances follow the narrowest floating dtype in the program and the largest magnitude that it meets: sums may
    be taken in another order.
    """
    tensors = [entry.make(torch.Generator().manual_seed(i + 1)) for i, entry in enumerate(program.inputs)]
    host = [t.detach().requires_grad_(entry.requires_grad) for t, entry in zip(tensors, program.inputs, strict=True)]
    device = [t.detach().to("neuron").requires_grad_(t.requires_grad) for t in host]
    expected = program.function()(*host)
    actual = compile_function(program.function())(*device)
    relative, scale = _tolerance(program, tensors)
    for name, one, other in zip(program.outputs, expected, actual, strict=True):
        found = _difference(one, other, relative, scale)
        if found:
            return f"{name}: {found}\n{program.source}{program.inputs}"
    roots = [(a, b) for a, b in zip(expected, actual, strict=True) if a.requires_grad and a.numel()]
    if not roots:
        return None
    sum(a.sum() for a, _ in roots).backward()
    sum(b.sum() for _, b in roots).backward()
    for i, (one, other) in enumerate(zip(host, device, strict=True)):
        # Of an output that the loss leaves out, a compiled graph takes zeros where eager mode takes nothing.
        expected_grad, actual_grad = (
            torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in (one, other)
        )
        size = max(scale, float(expected_grad.abs().max()) if expected_grad.numel() else 0.0)
        found = _difference(expected_grad, actual_grad, 10 * relative, size)
        if found:
            return f"the gradient of v{i}: {found}\n{program.source}{program.inputs}"
    return None


def _tolerance(program: Program, tensors: list[Tensor]) -> tuple[float, float]:
    names: dict[str, Any] = {f"v{i}": tensor for i, tensor in enumerate(tensors)}
    values = list(tensors)
    for statement in program.statements:
        name, _, expression = statement.partition(" = ")
        names[name] = eval(expression, {"torch": torch, "F": torch.nn.functional}, names)
        values.append(names[name])
    relative, scale = _TOLERANCE[torch.float32], 1.0
    for value in values:
        if value.is_floating_point() and value.numel():
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
