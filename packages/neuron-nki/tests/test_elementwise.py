"""Instructions on single elements, against NumPy in float64 rounded once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nki_harness import FLOATS, INTEGERS, NUMPY, assert_close, assert_same, data, execute, rounded, wide

from torch_neuronx_nki import NkiValidationError
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl

BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
SHAPES = st.sampled_from([(128, 8), (64, 3), (32, 2, 5), (1, 17), (128, 2, 2, 3)])
TARGETS = st.sampled_from(["trn2", "trn3"])


def f32(values: np.ndarray) -> np.ndarray:
    """The float32 that an engine reads."""
    return values.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("op", BINARY)
@given(
    shape=SHAPES,
    left=st.sampled_from(FLOATS + INTEGERS),
    right=st.sampled_from(FLOATS),
    to=st.sampled_from(FLOATS + INTEGERS),
    target=TARGETS,
    gpsimd=st.booleans(),
)
def test_tensor_tensor(op: str, shape: Any, left: str, right: str, to: str, target: str, gpsimd: bool) -> None:
    a, b = data(shape, left, 1), data(shape, right, 2)
    a.reshape(-1)[0] = b.reshape(-1)[0] if left not in INTEGERS else 0  # comparisons meet equal values
    engine = nisa.gpsimd_engine if gpsimd else nisa.vector_engine
    got = execute(
        lambda dst, x, y: nisa.tensor_tensor(dst, x, y, getattr(nl, op), engine=engine),
        a,
        b,
        out=(shape, to),
        target=target,
    )
    assert_same(got, rounded(BINARY[op](f32(a), f32(b)), to))


def test_operands_of_other_shapes_have_equal_elements() -> None:
    a, b = data((64, 2, 6), "float32", 1), data((64, 12), "bfloat16", 2)
    got = execute(lambda dst, x, y: nisa.tensor_tensor(dst, x, y, nl.add), a, b, out=((64, 3, 4), "float16"))
    assert_same(got, rounded(f32(a).reshape(64, 3, 4) + f32(b).reshape(64, 3, 4), "float16"))


@given(kind=st.sampled_from(["int32", "uint32"]), op=st.sampled_from(["add", "subtract", "multiply"]))
def test_integers_are_exact_on_gpsimd_and_rounded_on_vector(kind: str, op: str) -> None:
    limits = np.iinfo(kind)
    a = np.array([[limits.max, limits.max - 3, 16777217, 65537]], kind)
    b = np.array([[1, 7, 2, 65537]], kind)

    def run(engine: Any) -> np.ndarray:
        return execute(
            lambda dst, x, y: nisa.tensor_tensor(dst, x, y, getattr(nl, op), engine=engine), a, b, out=((1, 4), kind)
        )

    with np.errstate(over="ignore"):
        assert_same(run(nisa.gpsimd_engine), BINARY[op](a, b))
    assert_same(run(nisa.vector_engine), rounded(f32(BINARY[op](f32(a), f32(b))), kind))


@given(kind=st.sampled_from(INTEGERS), op=st.sampled_from(["bitwise_and", "bitwise_or", "bitwise_xor"]))
def test_bit_operations_convert_nothing(kind: str, op: str) -> None:
    generator = np.random.default_rng(3)
    limits = np.iinfo(kind)
    a, b = (generator.integers(limits.min, limits.max, (32, 9), endpoint=True).astype(kind) for _ in range(2))
    got = execute(lambda dst, x, y: nisa.tensor_tensor(dst, x, y, getattr(nl, op)), a, b, out=((32, 9), kind))
    assert_same(got, getattr(np, op)(a, b))


@given(kind=st.sampled_from(INTEGERS), by=st.integers(0, 9))
def test_shifts_are_logical(kind: str, by: int) -> None:
    generator = np.random.default_rng(4)
    limits = np.iinfo(kind)
    a = generator.integers(limits.min, limits.max, (32, 5), endpoint=True).astype(kind)
    width = a.dtype.itemsize * 8
    unsigned = a.view(f"u{a.dtype.itemsize}")
    shifted = {
        nl.right_shift: (unsigned.astype(np.uint64) >> by).astype(unsigned.dtype) if by < width else unsigned * 0,
        nl.left_shift: (unsigned.astype(np.uint64) << by).astype(unsigned.dtype) if by < width else unsigned * 0,
    }
    for op, expected in shifted.items():
        got = execute(lambda dst, x, op=op: nisa.tensor_scalar(dst, x, op, by), a, out=((32, 5), kind))
        assert_same(got, expected.view(kind))


ORDERED = st.sampled_from(["add", "subtract", "multiply", "maximum", "less"])


@given(
    op0=ORDERED,
    op1=st.none() | ORDERED,
    reverse0=st.booleans(),
    reverse1=st.booleans(),
    vector_operand=st.booleans(),
    kind=st.sampled_from([*FLOATS, "int32"]),
    to=st.sampled_from(FLOATS),
    shape=st.sampled_from([(128, 6), (33, 2, 3)]),
)
def test_tensor_scalar(
    op0: str, op1: Any, reverse0: bool, reverse1: bool, vector_operand: bool, kind: str, to: str, shape: Any
) -> None:
    x, s = data(shape, kind, 5), data((shape[0], 1), "float32", 6)
    got = execute(
        lambda dst, tile, scalar: nisa.tensor_scalar(
            dst,
            tile,
            getattr(nl, op0),
            scalar if vector_operand else 0.7,
            reverse0=reverse0,
            op1=getattr(nl, op1) if op1 else None,
            operand1=-1.25 if op1 else None,
            reverse1=reverse1,
        ),
        x,
        s,
        out=(shape, to),
    )
    operand = f32(s).reshape(-1, *[1] * (len(shape) - 1)) if vector_operand else np.float64(np.float32(0.7))
    value = f32(BINARY[op0](operand, f32(x)) if reverse0 else BINARY[op0](f32(x), operand))
    if op1:
        value = BINARY[op1](-1.25, value) if reverse1 else BINARY[op1](value, -1.25)
    assert_same(got, rounded(value, to))


@given(op0=ORDERED, op1=ORDERED, reverse0=st.booleans(), reverse1=st.booleans(), in_place=st.booleans())
def test_scalar_tensor_tensor(op0: str, op1: str, reverse0: bool, reverse1: bool, in_place: bool) -> None:
    x, y = data((64, 7), "bfloat16", 7), data((64, 7), "float32", 8)

    def body(dst: Any, tile: Any, other: Any) -> None:
        to = other if in_place else dst
        nisa.scalar_tensor_tensor(
            to, tile, getattr(nl, op0), 1.5, getattr(nl, op1), other, reverse0=reverse0, reverse1=reverse1
        )
        if in_place:
            nisa.tensor_copy(dst, other)

    got = execute(body, x, y, out=((64, 7), "float32"))
    value = f32(BINARY[op0](1.5, f32(x)) if reverse0 else BINARY[op0](f32(x), 1.5))
    value = BINARY[op1](f32(y), value) if reverse1 else BINARY[op1](value, f32(y))
    assert_same(got, rounded(value, "float32"))


@given(kind=st.sampled_from(FLOATS + INTEGERS), to=st.sampled_from(FLOATS + INTEGERS), psum=st.booleans())
def test_copies_convert_through_float32(kind: str, to: str, psum: bool) -> None:
    x = data((32, 4, 3), kind, 9, scale=300.0)
    buffers = [nl.psum] if psum else None
    got = execute(nisa.tensor_copy, x, out=((32, 12), to), buffers=buffers)
    assert_same(got, rounded(f32(x), to).reshape(32, 12))


def test_a_copy_within_a_type_keeps_the_bits() -> None:
    bits = np.arange(256, dtype=np.uint8).reshape(2, 128)
    for kind in ("float8_e4m3", "float8_e5m2"):
        got = execute(nisa.tensor_copy, bits.view(NUMPY[kind]), out=((2, 128), kind))
        assert np.array_equal(got.view(np.uint8), bits)
    words = np.array([[2**31 + 1, 16777217, 4294967295]], np.uint32)
    assert_same(execute(nisa.tensor_copy, words, out=((1, 3), "uint32")), words)


@pytest.mark.parametrize("kind", FLOATS + INTEGERS)
def test_memset(kind: str) -> None:
    value = 3 if kind in INTEGERS else 1.0 / 3
    got = execute(lambda dst: nisa.memset(dst, value), out=((128, 2, 3), kind))
    assert_same(got, rounded(np.full((128, 2, 3), value), kind))


@given(kind=st.sampled_from(["float32", "bfloat16"]), reverse=st.booleans(), scalar=st.booleans())
def test_predicated_copies_leave_the_rest(kind: str, reverse: bool, scalar: bool) -> None:
    before, x = data((32, 6), kind, 10), data((32, 6), kind, 11)
    mask = (data((32, 6), "int32", 12) % 2 == 0).astype(np.uint8)

    def body(dst: Any, old: Any, new: Any, predicate: Any) -> None:
        nisa.tensor_copy(dst, old)
        nisa.tensor_copy_predicated(dst, 0.5 if scalar else new, predicate, reverse_pred=reverse)

    got = execute(body, before, x, mask, out=((32, 6), kind))
    chosen = (mask == 0) if reverse else (mask != 0)
    assert_same(got, np.where(chosen, NUMPY[kind](0.5) if scalar else x, before).astype(NUMPY[kind]))


def test_the_smallest_float_as_kernels_write_it() -> None:
    def body(dst: Any) -> None:
        nisa.memset(dst[:, 0:1], -3.4028235e38)
        nisa.tensor_scalar(dst[:, 1:2], dst[:, 0:1], nl.maximum, -3.4028235e38)
        nisa.affine_select(dst[:, 2:3], [[1, 1]], 0, dst[:, 0:1], -3.4028235e38, offset=1)

    got = execute(body, out=((2, 3), "float32"))
    assert (got == np.finfo(np.float32).min).all()


def test_reciprocal() -> None:
    x = data((64, 5), "float32", 13) + 2
    assert_close(execute(nisa.reciprocal, x, out=((64, 5), "bfloat16")), rounded(1 / wide(x), "bfloat16"))


def test_results_may_overlap_their_inputs() -> None:
    x = data((32, 8), "float32", 14)

    def shift(dst: Any, tile: Any) -> None:
        nisa.tensor_tensor(tile[:, 1:8], tile[:, 0:7], tile[:, 0:7], nl.add)
        nisa.tensor_copy(dst, tile)

    expected = x.copy()
    expected[:, 1:8] = x[:, 0:7] * 2
    assert_same(execute(shift, x, out=((32, 8), "float32")), expected)


def test_the_last_of_what_is_written_to_one_place_stays() -> None:
    x = data((32, 4), "float32", 16)

    def body(dst: Any, total: Any, tile: Any) -> None:
        nisa.activation_reduce(dst.broadcast(1, 4), nl.square, tile, nl.add, total)

    last, total = execute(body, x, out=[((32, 1), "bfloat16"), ((32, 1), "float32")])
    assert_same(last, rounded(wide(x)[:, 3:] ** 2, "bfloat16"))
    assert_close(total, rounded((wide(x) ** 2).sum(1, keepdims=True), "float32"))


def test_low_precision_can_be_kept_in_float32() -> None:
    x = data((32, 4), "float32", 15)

    def body(dst: Any, tile: Any) -> None:
        narrow = nl.ndarray(tile.shape, nl.bfloat16)
        nisa.tensor_copy(narrow, tile)
        nisa.tensor_copy(dst, narrow)

    assert_same(execute(body, x, out=((32, 4), "float32"), precise=False), x)
    assert_same(execute(body, x, out=((32, 4), "float32")), rounded(wide(x), "bfloat16").astype(np.float32))


def test_fp8_overflow_saturates_on_request() -> None:
    x = np.array([[1000.0, -1000.0, 3.0]], np.float32)
    plain = execute(nisa.tensor_copy, x, out=((1, 3), "float8_e4m3"))
    assert np.isinf(wide(plain)[0, :2]).all()
    kept = execute(nisa.tensor_copy, x, out=((1, 3), "float8_e4m3"), saturate_fp8=True)
    assert wide(kept).tolist() == [[240.0, -240.0, 3.0]]


REFUSED = {
    "partition-match": lambda a, b: nisa.tensor_tensor(a, a, b[0:32, :], nl.add),
    "element-match": lambda a, b: nisa.tensor_tensor(a, a, b[:, 0:3], nl.add),
    "operator": lambda a, b: nisa.tensor_tensor(a, a, b, nl.exp),
    "dtype": lambda a, b: nisa.tensor_tensor(a, a, b, nl.bitwise_and),
    "engine": lambda a, b: nisa.tensor_tensor(a, a, b, nl.add, engine=nisa.scalar_engine),
    "operator-mix": lambda a, b: nisa.tensor_scalar(a.view("int32"), a.view("int32"), nl.bitwise_and, 1, op1=nl.add),
    "partition-start": lambda a, b: nisa.tensor_copy(a[16:32, :], b[0:16, :]),
    "tensor-expected": lambda a, b: nisa.tensor_copy(a, 3.0),
    "operand-value": lambda a, b: nisa.tensor_scalar(a, b, nl.add, "1"),
    "shape-match": lambda a, b: nisa.tensor_scalar(a, b, nl.add, b),
    "index-bounds": lambda a, b: nisa.tensor_copy(a[:, 0:9], b[:, 0:9]),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused(rule: str) -> None:
    def body(dst: Any) -> None:
        REFUSED[rule](dst, nl.zeros((64, 4), nl.float32))

    with pytest.raises(NkiValidationError) as caught:
        execute(body, out=((64, 4), "float32"))
    assert caught.value.rule == rule
    assert caught.value.source.file == __file__
    assert caught.value.limit is not None
    assert f"[{rule}]" in str(caught.value)


def test_gpsimd_does_not_reach_psum() -> None:
    with pytest.raises(NkiValidationError, match="psum") as caught:
        execute(lambda dst: nisa.memset(dst, 0, engine=nisa.gpsimd_engine), out=((8, 8), "float32"), out_buffer=nl.psum)
    assert caught.value.rule == "engine"


def test_two_inputs_in_psum_are_refused() -> None:
    x = data((8, 8), "float32")
    with pytest.raises(NkiValidationError) as caught:
        execute(
            lambda dst, a, b: nisa.tensor_tensor(dst, a, b, nl.add),
            x,
            x,
            out=((8, 8), "float32"),
            buffers=[nl.psum, nl.psum],
        )
    assert caught.value.rule == "psum-inputs"


@pytest.mark.parametrize(("target", "fits"), [("trn2", False), ("trn3", True)])
def test_abs_max_is_newer(target: str, fits: bool) -> None:
    x, y = data((8, 8), "float32", 1), data((8, 8), "float32", 2)

    def run() -> np.ndarray:
        return execute(
            lambda dst, a, b: nisa.tensor_tensor(dst, a, b, nl.abs_max), x, y, out=((8, 8), "float32"), target=target
        )

    if fits:
        assert_same(run(), np.maximum(np.abs(x), np.abs(y)))
    else:
        with pytest.raises(NkiValidationError) as caught:
            run()
        assert caught.value.rule == "generation"
