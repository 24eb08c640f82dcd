"""Functions of nki.language: tiles by value, composites, loops, constants."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from nki_harness import data, execute, rounded, wide

from torch_neuronx_nki import NkiValidationError, NkiWarning
from torch_neuronx_nki import dtypes as types
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit, simulate

X = data((32, 6), "float32", 1)
Y = data((32, 6), "float32", 2)
BITS = data((32, 6), "int32", 3)


def computed(
    make: Any, *inputs: np.ndarray, dtype: str = "float32", target: str = "trn2", **settings: Any
) -> np.ndarray:
    """Return the tile that ``make`` gives."""
    shape: list[Any] = []

    def measure(dst: Any, *tiles: Any) -> None:
        shape.append(make(*tiles).shape)
        nisa.memset(dst, 0)

    execute(measure, *inputs, out=((1, 1), "float32"), target=target)
    return execute(
        lambda dst, *tiles: nisa.tensor_copy(dst, make(*tiles)), *inputs,
        out=(shape[0], dtype), target=target, **settings,
    )  # fmt: skip


BINARY = {
    nl.add: np.add,
    nl.subtract: np.subtract,
    nl.multiply: np.multiply,
    nl.maximum: np.maximum,
    nl.minimum: np.minimum,
    nl.less: np.less,
    nl.logical_and: np.logical_and,
    nl.power: lambda a, b: np.power(np.abs(a), b) if isinstance(b, float) else np.power(a, b),
}


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_operators_by_value(op: Any) -> None:
    x = np.abs(X) if op is nl.power else X
    expected = BINARY[op](x.astype(np.float64), Y.astype(np.float64))
    assert np.allclose(computed(op, x, Y), expected, rtol=1e-5)
    assert np.allclose(computed(lambda a: op(a, 2.0), x), BINARY[op](x.astype(np.float64), 2.0), rtol=1e-5)
    if op is not nl.power:
        assert np.allclose(computed(lambda a: op(0.25, a), x), BINARY[op](0.25, x.astype(np.float64)), rtol=1e-5)


UNARY = {
    nl.exp: np.exp,
    nl.abs: np.abs,
    nl.negative: np.negative,
    nl.ceil: np.ceil,
    nl.floor: np.floor,
    nl.trunc: np.trunc,
    nl.cos: np.cos,
    nl.tan: np.tan,
    nl.tanh_dx: lambda x: 1 - np.tanh(x) ** 2,
    nl.relu_dx: lambda x: (x > 0).astype(np.float32),
    nl.logical_not: np.logical_not,
    nl.sign: np.sign,
    nl.copy: lambda x: x,
    nl.square: np.square,
}


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_functions_of_one_tile(op: Any) -> None:
    assert np.allclose(computed(op, X), UNARY[op](X), rtol=1e-5, atol=1e-6)
    assert np.allclose(computed(lambda x: op(x, dtype=nl.float32), X), UNARY[op](X), rtol=1e-5, atol=1e-6)


def test_bits() -> None:
    assert np.array_equal(computed(nl.invert, BITS, dtype="int32"), ~BITS)
    assert np.array_equal(computed(lambda x: nl.bitwise_and(x, 6), BITS, dtype="int32"), BITS & 6)


@pytest.mark.parametrize(("op", "function"), [(nl.divide, np.divide), (nl.fmod, np.fmod), (nl.mod, np.mod)])
def test_operators_that_the_chip_lacks_warn(op: Any, function: Any) -> None:
    with pytest.warns(NkiWarning, match="not in the chip's table"):
        got = computed(op, X, np.abs(Y) + 1)
    assert np.allclose(got, function(X, np.abs(Y) + 1), rtol=1e-5)


def test_abs_min_and_bypass() -> None:
    got = computed(nl.abs_min, X, Y, target="trn3")
    assert np.array_equal(got, np.minimum(np.abs(X), np.abs(Y)))
    assert np.array_equal(computed(lambda x: nl.bypass(x, 1.0), X), X)


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (nl.sum, np.sum),
        (nl.max, np.max),
        (nl.min, np.min),
        (nl.prod, np.prod),
        (nl.mean, np.mean),
        (nl.var, np.var),
        (nl.all, np.all),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_reductions_by_value(function: Any, reference: Any) -> None:
    got = computed(lambda x: function(x, axis=1), X)
    assert np.allclose(got, reference(X.astype(np.float64), axis=1, keepdims=True), rtol=1e-4)
    deep = data((16, 3, 4), "float32", 4)
    got = computed(lambda x: function(x, axis=[2], keepdims=True), deep)
    assert np.allclose(got, reference(deep.astype(np.float64), axis=2, keepdims=True), rtol=1e-4, atol=1e-6)


def test_composites() -> None:
    powers = np.exp(X - X.max(1, keepdims=True))
    assert np.allclose(computed(nl.softmax, X), powers / powers.sum(1, keepdims=True), rtol=1e-5)
    got = computed(lambda x, w: nl.rms_norm(x, w, axis=1, n=6), X, Y)
    assert np.allclose(got, X / np.sqrt((X**2).mean(1, keepdims=True) + 1e-6) * Y, rtol=1e-4)
    mask = (X > 0).astype(np.float32)
    assert np.array_equal(computed(nl.where, mask, X, Y), np.where(mask, X, Y))
    assert np.array_equal(computed(lambda m, x: nl.where(m, x, -1.0), mask, X), np.where(mask, X, np.float32(-1)))
    assert np.allclose(
        computed(nl.matmul, data((16, 32), "float32", 5), Y), data((16, 32), "float32", 5) @ Y, atol=1e-4
    )
    assert np.allclose(computed(lambda a, b: nl.matmul(a, b, transpose_x=True), X, Y), X.T @ Y, atol=1e-4)
    assert np.array_equal(computed(nl.transpose, X), X.T)
    assert np.array_equal(computed(lambda x: nl.broadcast_to(x[0:1, :], (32, 6)), X), np.broadcast_to(X[:1], (32, 6)))
    assert np.array_equal(
        computed(lambda x: nl.broadcast_to(x[:, 0:1], (32, 6)), X), np.broadcast_to(X[:, :1], (32, 6))
    )
    index = np.tile(np.array([[5, 0, 2]], np.uint32), (32, 1))
    assert np.array_equal(computed(nl.gather_flattened, X, index), X[:, [5, 0, 2]])
    assert set(np.unique(computed(lambda x: nl.dropout(x, 1.0), X))) == {0.0}


def test_allocations() -> None:
    like = lambda f: computed(lambda x: f(x), X)  # noqa: E731
    assert (like(nl.zeros_like) == 0).all()
    assert np.isnan(computed(nl.empty_like, X, verify="off")).all()
    assert (computed(lambda: nl.ones((4, 2), nl.float32)) == 1).all()
    assert (computed(lambda: nl.full((4, 2), 2.5, nl.float32)) == 2.5).all()


def test_loads_stores_and_constants() -> None:
    @jit
    def kernel(x: Any, bits: Any) -> Any:
        out = nl.ndarray((6, 32), nl.float32, nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x))
        identity = nl.ndarray((3, 3), nl.float32, nl.shared_hbm)
        ones = nl.shared_identity_matrix(3, dtype=nl.float32)
        assert nl.is_sbuf(ones)
        nisa.dma_copy(identity, ones)
        table = nl.ndarray((2, 2), nl.bfloat16, nl.shared_hbm)
        nisa.dma_copy(table, nl.shared_constant(np.array([[1, 2], [3, 4]], np.float32)))
        product = nl.ndarray((32, 32), nl.float32, nl.shared_hbm)
        nl.store(product, nl.matmul(nl.load(x), nl.load(out[:, :])))
        return out, identity, table, product

    x = torch.from_numpy(X)
    out, identity, table, product = kernel(x, torch.from_numpy(BITS))
    assert torch.equal(out, x.T)
    assert torch.equal(identity, torch.eye(3))
    assert table.tolist() == [[1, 2], [3, 4]]
    torch.testing.assert_close(product, x @ x.T)


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    @jit
    def kernel(x: Any) -> None:
        tile = nl.load(x)
        nl.device_print("tile", tile)
        nl.device_print("register", nisa.register_alloc(tile[0:1, 0:1]))
        nl.device_print("done")

    kernel(torch.tensor([[3.0, 4.0]]))
    assert capsys.readouterr().out.split() == ["tile", "tensor([[3.,", "4.]])", "register", "3", "done"]


def test_loops() -> None:
    seen: list[Any] = []

    def kernel() -> None:
        for loop in (nl.affine_range, nl.sequential_range, nl.static_range):
            seen.append(list(loop(1, 6, 2)))
        seen.append([int(i) for i in nl.dynamic_range(3)])

    simulate(jit(kernel), language="0.6")()
    assert seen == [[1, 3, 5]] * 3 + [[0, 1, 2]]
    with pytest.raises(NkiValidationError) as caught:
        simulate(jit(kernel))()
    assert caught.value.rule == "language"
    for loop in (lambda: nl.fori_loop(0, 1, print), lambda: nl.while_loop(0, print)):
        with pytest.raises(NkiValidationError) as caught:
            simulate(jit(loop), language="0.5")()
        assert caught.value.rule == "language"


@pytest.mark.parametrize(("target", "kilobytes"), [("trn2", 224), ("trn3", 256)])
def test_sizes_of_the_chip(target: str, kilobytes: int) -> None:
    def kernel() -> None:
        size = nl.tile_size
        assert (size.pmax, size.psum_fmax, size.psum_bank_fmax, size.psum_num_banks) == (128, 512, 512, 8)
        assert (size.psum_bank_fmax_bytes, size.bn_stats_fmax) == (2048, 512)
        assert (size.gemm_stationary_fmax, size.gemm_moving_fmax) == (128, 512)
        assert size.sbuf_fmax_bytes == size.total_available_sbuf_size == kilobytes * 1024
        assert size.sbuf_fmax * 4 == size.sbuf_fmax_bytes
        assert size.sbuf_size_bytes == 128 * kilobytes * 1024
        assert size.sbuf_min_align >= 1
        assert size.psum_min_align >= 1
        assert nisa.get_nc_sub_version() == 0

    simulate(jit(kernel), target=target)()


def test_types_are_their_names() -> None:
    for dtype in types.DTYPES:
        assert dtype == str(dtype)
        assert types.as_dtype(str(dtype)) is dtype
        assert types.as_dtype(np.dtype("float32")) is nl.float32
    assert nl.float32 == "float32"
    assert nl.bool_ == "bool"
    assert types.as_dtype(torch.bfloat16) is nl.bfloat16
    assert types.as_dtype(np.int32) is nl.int32
    assert types.as_dtype("float64") is None
    assert nl.float4_e2m1fn_x4.itemsize == 2
    assert nl.float8_e4m3fn_x4.itemsize == nl.float8_e5m2_x4.itemsize == 4


def test_tfloat32_keeps_ten_bits_and_e8m0_powers_of_two() -> None:
    x = np.array([[1 + 2**-10, 1 + 2**-11, 1 + 2**-11 + 2**-20, -3.1415927]], np.float32)
    got = execute(lambda dst, tile: nisa.tensor_copy(dst, nl.copy(tile, dtype=nl.tfloat32)), x, out=((1, 4), "float32"))
    assert got[0, :3].tolist() == [1 + 2**-10, 1.0, 1 + 2**-10]
    assert got[0, 3] == -1608 / 512
    powers = np.array([[0.25, 1.0, 8.0]], np.float32)
    got = execute(
        lambda dst, tile: nisa.tensor_copy(dst, nl.copy(tile, dtype=nl.float8_e8m0fnu)), powers, out=((1, 3), "float32")
    )
    assert np.array_equal(got, powers)


def test_a_base_class_for_what_kernels_carry() -> None:
    class Sizes(nl.NKIObject):
        rows = 4

    @jit
    def kernel(x: Any, sizes: Sizes) -> Any:
        out = nl.ndarray((sizes.rows, 2), x.dtype, nl.shared_hbm)
        assert isinstance(x, nl.NkiTensor)
        assert isinstance(nisa.register_alloc(3), nl.NkiScalar)
        nl.store(out, nl.zeros((sizes.rows, 2), x.dtype))
        return out

    assert kernel(torch.ones(2, 2), Sizes()).shape == (4, 2)

    class Range(Sizes):
        start: int
        stop: int = 9

    @dataclasses.dataclass
    class Plain(nl.NKIObject):
        first = None
        second = 2

    assert Plain(first=1) == Plain(1, 2)
    made = Range(start=3)
    assert (made.start, made.stop, made.rows) == (3, 9, 4)
    assert Range(5, 1, stop=2).stop == 2
    for call in (lambda: Range(), lambda: Range(1, 2, 3, 4), lambda: Range(1, end=2), lambda: Range(1, rows=2)):
        with pytest.raises(TypeError, match="Range"):
            call()
    assert math.isclose(rounded(0.1, "bfloat16"), 0.1, rel_tol=1e-2)
    assert wide(np.float32([1])).dtype == np.float64
