"""Small graphs of any shape: what is compiled equals what the CPU computes."""

from collections.abc import Callable

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from .helpers import check

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "square": torch.square,
    "gelu": torch.nn.functional.gelu,
    "softmax": lambda x: x.softmax(-1),
    "centre": lambda x: x - x.mean(0, keepdim=True),
    "transpose twice": lambda x: (x.t() * 0.5).t(),
    "product": lambda x: (x @ x.t()) @ x / x.numel(),
    "first row": lambda x: x + x[0],
    "halves": lambda x: torch.cat(x.chunk(2, 0)[::-1]),
    "clamp": lambda x: x.clamp(-0.5, 1.5),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "multiply": torch.mul,
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "divide": lambda x, y: x / (1 + y * y),
}


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, tuple[int, ...]]]:
    steps: list[tuple[str, tuple[int, ...]]] = []
    for values in range(1, draw(st.integers(1, 7)) + 1):
        name = draw(st.sampled_from([*UNARY, *BINARY]))
        count = 1 if name in UNARY else 2
        steps.append((name, tuple(draw(st.integers(0, values - 1)) for _ in range(count))))
    return steps


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs(), rows=st.integers(2, 5), columns=st.integers(1, 6), seed=st.integers(0, 999))
def test_random_graphs(program: list[tuple[str, tuple[int, ...]]], rows: int, columns: int, seed: int) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        values = [x]
        for name, operands in program:
            operation = UNARY[name] if name in UNARY else BINARY[name]
            values.append(operation(*(values[i] for i in operands)))
        return values[-1], values[len(values) // 2] * 1.0

    torch._dynamo.reset()
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    check(function, x, grad=True, rtol=1e-4, atol=1e-4)
