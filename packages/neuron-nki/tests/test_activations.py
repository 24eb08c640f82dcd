"""The scalar engine's functions and the running results of both engines."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nki_harness import FLOATS, assert_close, assert_same, data, execute, rounded, wide

from torch_neuronx_nki import NkiValidationError
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl

erf = np.vectorize(math.erf)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def phi(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + erf(x / np.sqrt(2)))


def slope(function: Any) -> Any:
    return lambda x: (function(x + 1e-6) - function(x - 1e-6)) / 2e-6


FUNCTIONS = {
    "copy": lambda x: x,
    "square": np.square,
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * phi(x),
    "gelu_dx": slope(lambda x: x * phi(x)),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": slope(lambda x: x * sigmoid(1.702 * x)),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": slope(lambda x: x * sigmoid(x)),
    "tanh": np.tanh,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "erf": erf,
    "erf_dx": lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sign": np.sign,
    "abs": np.abs,
}
POSITIVE = {"log", "sqrt", "rsqrt", "reciprocal"}


@pytest.mark.parametrize("op", FUNCTIONS)
@given(
    kind=st.sampled_from(FLOATS),
    to=st.sampled_from(["float32", "bfloat16"]),
    shape=st.sampled_from([(128, 4), (64, 2, 3)]),
    scale=st.sampled_from([1.0, 0.5, "tile"]),
    bias=st.sampled_from([None, "tile"]),
)
def test_activation(op: str, kind: str, to: str, shape: Any, scale: Any, bias: Any) -> None:
    x = data(shape, kind, 1)
    factors = np.abs(data((shape[0], 1), "float32", 2)) + 0.1
    offsets = np.abs(data((shape[0], 1), "float32", 3)) * 0.1
    if op in POSITIVE:
        x = (np.abs(wide(x)) + 0.5).astype(x.dtype)
    got = execute(
        lambda dst, tile, s, b: nisa.activation(
            dst,
            getattr(nl, op),
            tile,
            bias=b if bias else None,
            scale=s if scale == "tile" else scale,
        ),
        x,
        factors,
        offsets,
        out=(shape, to),
    )
    column = (-1, *[1] * (len(shape) - 1))
    factor = wide(factors).reshape(column) if scale == "tile" else scale
    inner = wide(x) * factor + (wide(offsets).reshape(column) if bias else 0)
    if op == "sin":
        inside = np.abs(inner) < np.pi
        got, inner = np.where(inside, got, 0).astype(got.dtype), np.where(inside, inner, 0)
    expected = FUNCTIONS[op](inner)
    error = np.abs(wide(got) - expected)
    tolerance = {"float32": 4e-6, "bfloat16": 6e-3}[to]
    assert (error <= tolerance * np.maximum(np.abs(expected), 0.3)).all(), error.max()


@pytest.mark.parametrize("kind", [*FLOATS, "float8_e4m3fn"])
def test_a_bias_of_any_type(kind: str) -> None:
    x, bias = data((4, 6), "float32", 1), data((4, 1), kind, 2)

    def body(dst: Any, tile: Any, column: Any) -> None:
        nisa.activation(dst, nl.copy, tile, bias=column)

    got = execute(body, x, bias, out=((4, 6), "float32"), target="trn3")
    assert_same(got, rounded(wide(x) + wide(bias), "float32"))


def test_operands_may_be_parts_of_the_tensor_that_is_written() -> None:
    x = data((4, 6), "float32", 3)
    want = np.exp(wide(x) * 0.5 + wide(x[:, :1]))

    def one(dst: Any, tile: Any) -> None:
        nisa.activation_reduce(tile, nl.exp, tile, nl.add, dst[:, 6:7], bias=tile[:, 0:1], scale=0.5)
        nisa.tensor_copy(dst[:, 0:6], tile)

    assert_close(execute(one, x, out=((4, 7), "float32")), rounded(np.c_[want, want.sum(1)], "float32"))

    def whole(dst: Any, tile: Any) -> None:
        nisa.activation_reduce(dst[:, 0:6], nl.exp, tile, nl.add, dst[:, 6:7], bias=tile[:, 0:1], scale=0.5)

    assert_close(execute(whole, x, out=((4, 7), "float32")), rounded(np.c_[want, want.sum(1)], "float32"))

    def scaled(dst: Any, tile: Any) -> None:
        nisa.tensor_scalar(tile, tile, nl.multiply, tile[:, 0:1])
        nisa.tensor_copy(dst, tile)

    assert_same(execute(scaled, x, out=((4, 6), "float32")), rounded(wide(x) * wide(x[:, :1]), "float32"))

    def column(dst: Any, tile: Any) -> None:
        nisa.activation(tile[:, 0:1], nl.copy, tile[:, 1:2], bias=tile[:, 0:1], scale=3.0)
        nisa.tensor_copy(dst, tile[:, 0:1])

    tripled = wide(rounded(wide(x[:, 1:2]) * 3, "float32"))
    assert_same(execute(column, x, out=((4, 1), "float32")), rounded(tripled + wide(x[:, :1]), "float32"))


def test_the_engines_sine_has_no_range_reduction_and_nl_sin_has() -> None:
    x = np.array([[9.0, -9.0, 1.0]], np.float32)
    got = execute(lambda dst, tile: nisa.activation(dst, nl.sin, tile), x, out=((1, 3), "float32"))
    assert np.allclose(got, [[27.65, -27.65, np.sin(1)]], atol=1e-4)
    got = execute(lambda dst, tile: nisa.tensor_copy(dst, nl.sin(tile)), x, out=((1, 3), "float32"))
    assert np.allclose(got, np.sin(x), atol=1e-6)


def test_sums_run_on_between_instructions() -> None:
    x = data((64, 8), "float32", 4)

    def body(dst: Any, total: Any, tile: Any) -> None:
        command = nisa.reduce_cmd
        nisa.activation(dst, nl.square, tile[:, 0:8], reduce_op=nl.add, reduce_cmd=command.reset_reduce)
        nisa.activation(dst, nl.copy, tile, reduce_op=nl.add, reduce_res=total, reduce_cmd=command.reduce)

    _, total = execute(body, x, out=[((64, 8), "float32"), ((64, 1), "float32")])
    expected = (wide(x) ** 2).sum(1, keepdims=True) + wide(x).sum(1, keepdims=True)
    assert np.allclose(total, expected, atol=1e-5)


def test_activation_reduce_may_write_its_sum_over_its_input() -> None:
    x = data((32, 1), "float32", 5)
    got = execute(lambda dst, tile: nisa.activation_reduce(dst, nl.exp, tile, nl.add, dst), x, out=((32, 1), "float32"))
    assert np.allclose(got, np.exp(wide(x)), rtol=1e-6)


@given(
    op=st.sampled_from(["add", "multiply", "maximum", "minimum"]),
    negate=st.booleans(),
    command=st.sampled_from(["reset_reduce", "load_reduce"]),
)
def test_tensor_scalar_reduce(op: str, negate: bool, command: str) -> None:
    x = data((32, 5), "float32", 6)

    def body(dst: Any, total: Any, tile: Any) -> None:
        nisa.tensor_scalar_reduce(
            dst,
            tile,
            nl.multiply,
            2.0,
            getattr(nl, op),
            total,
            reduce_cmd=nisa.reduce_cmd[command],
            reduce_init=0.5,
            reduce_res_negate=negate,
        )

    got, total = execute(body, x, out=[((32, 5), "bfloat16"), ((32, 1), "float32")])
    assert_same(got, rounded(wide(x) * 2, "bfloat16"))
    fold = {"add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min}[op]
    expected = fold(wide(x) * 2, axis=1, keepdims=True)
    if command == "load_reduce":
        expected = fold(np.concatenate([expected, np.full_like(expected, 0.5)], 1), axis=1, keepdims=True)
    assert np.allclose(total, -expected if negate else expected, rtol=1e-5, atol=1e-6)


def test_the_largest_magnitude_of_each_partition() -> None:
    x = data((32, 5), "float32", 6)

    def body(dst: Any, top: Any, tile: Any) -> None:
        nisa.tensor_scalar_reduce(dst, tile, nl.abs, None, nl.maximum, top)

    got, top = execute(body, x, out=[((32, 5), "float32"), ((32, 1), "float32")])
    assert_same(got, np.abs(x))
    assert_same(top, np.abs(x).max(1, keepdims=True))


def test_range_select_keeps_what_is_between_the_bounds_of_its_partition() -> None:
    x = data((32, 10), "float32", 7)
    low, high = np.full((32, 1), 2.0, np.float32), np.arange(32, dtype=np.float32)[:, None] % 11

    def body(dst: Any, top: Any, tile: Any, a: Any, b: Any) -> None:
        nisa.range_select(dst, tile, nl.greater_equal, nl.less, a, b, reduce_res=top, range_start=1)

    got, top = execute(body, x, low, high, out=[((32, 10), "float32"), ((32, 1), "float32")])
    position = np.arange(10) + 1
    expected = np.where((position >= low) & (position < high), x, np.float32(-3.4028235e38))
    assert_same(got, expected)
    assert_same(top, expected.max(1, keepdims=True))


def test_select_reduce() -> None:
    x, mask = data((32, 6), "bfloat16", 8), (data((32, 6), "int32", 9) > 0).astype(np.uint8)
    got, top = execute(
        lambda dst, top, p, t: nisa.select_reduce(
            dst, p, t, -1.0, reduce_res=top, reduce_cmd=nisa.reduce_cmd.reset_reduce
        ),
        mask,
        x,
        out=[((32, 6), "float32"), ((32, 1), "float32")],
    )
    expected = np.where(mask, wide(x), -1.0).astype(np.float32)
    assert_same(got, expected)
    assert_same(top, expected.max(1, keepdims=True))


@given(op=st.sampled_from(["add", "multiply", "maximum"]), load=st.booleans())
def test_tensor_scalar_cumulative(op: str, load: bool) -> None:
    x = data((32, 6), "float32", 10)
    got = execute(
        lambda dst, tile: nisa.tensor_scalar_cumulative(
            dst,
            tile,
            nl.add,
            getattr(nl, op),
            0.25,
            imm1=2.0 if load else None,
            reduce_cmd=nisa.reduce_cmd.load_reduce if load else nisa.reduce_cmd.reset_reduce,
        ),
        x,
        out=((32, 6), "float32"),
    )
    fold = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum}[op]
    start = np.full((32, 1), 2.0 if load else {"add": 0, "multiply": 1, "maximum": -np.inf}[op])
    expected = fold.accumulate(np.concatenate([start, wide(x) + 0.25], 1), axis=1)[:, 1:]
    assert_close(got, rounded(expected, "float32"), units=8)


def test_newer_instructions() -> None:
    x = data((32, 6), "float32", 11)
    got, total = execute(
        lambda dst, total, tile: nisa.exponential(
            dst, tile, 1.0, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce
        ),
        x,
        out=[((32, 6), "float32"), ((32, 1), "float32")],
        target="trn3",
    )
    assert np.allclose(got, np.exp(x - 1), rtol=1e-6)
    assert np.allclose(total, np.exp(x - 1).sum(1, keepdims=True), rtol=1e-5)
    got = execute(
        lambda dst, tile: nisa.activate2(
            dst, nl.prelu, tile, imm0=2.0, imm1=0.5, op0=nl.multiply, op1=nl.subtract, relu_param=0.25
        ),
        x,
        out=((32, 6), "float32"),
        target="trn3",
    )
    inner = wide(x) * 2 - 0.5
    assert np.allclose(got, np.where(inner >= 0, inner, inner * 0.25), rtol=1e-6)
    for call in (nisa.exponential, lambda dst, tile: nisa.activate2(dst, nl.exp, tile)):
        with pytest.raises(NkiValidationError) as caught:
            execute(call, x, out=((32, 6), "float32"), target="trn2")
        assert caught.value.rule == "generation"


REFUSED = {
    "operator": lambda a, b: nisa.activation(a, nl.add, b),
    "shape-match": lambda a, b: nisa.activation(a, nl.exp, b, scale=b),
    "dtype": lambda a, b: nisa.activation(a, nl.exp, b, scale=nl.zeros((32, 1), nl.bfloat16)),
    "element-match": lambda a, b: nisa.activation(a[:, 0:2], nl.exp, b),
    "operand-value": lambda a, b: nisa.range_select(a, b, nl.less, nl.less, a[:, 0:1], a[:, 0:1], on_false_value=0.0),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused(rule: str) -> None:
    with pytest.raises(NkiValidationError) as caught:
        execute(lambda dst: REFUSED[rule](dst, nl.zeros((32, 4), nl.float32)), out=((32, 4), "float32"))
    assert caught.value.rule == rule
