"""The tensor engine: products, accumulation in PSUM, transposes, and their limits."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nki_harness import NUMPY, assert_close, assert_same, data, execute, rounded, wide

from torch_neuronx_nki import NkiValidationError, NkiWarning
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl

NARROW = ["bfloat16", "float16", "float8_e4m3", "float8_e5m2"]


@given(
    k=st.sampled_from([1, 32, 100, 128]),
    m=st.sampled_from([1, 64, 128]),
    n=st.sampled_from([1, 33, 512]),
    left=st.sampled_from(NARROW),
    right=st.sampled_from(NARROW),
    target=st.sampled_from(["trn2", "trn3"]),
)
def test_products_of_narrow_types_are_summed_in_float32(
    k: int, m: int, n: int, left: str, right: str, target: str
) -> None:
    a, b = data((k, m), left, 1), data((k, n), right, 2)
    got = execute(nisa.nc_matmul, a, b, out=((m, n), "float32"), out_buffer=nl.psum, target=target)
    assert_close(got, rounded(wide(a).T @ wide(b), "float32"), units=k)


@given(kind=st.sampled_from(["float32", "bfloat16"]), accumulate=st.sampled_from([None, True]))
def test_later_products_are_added(kind: str, accumulate: Any) -> None:
    a, b = data((64, 32), kind, 3), data((64, 16), kind, 4)

    def body(dst: Any, x: Any, y: Any) -> None:
        nisa.nc_matmul(dst, x, y)
        for _ in range(2):
            nisa.nc_matmul(dst, x, y, accumulate=accumulate)

    got = execute(body, a, b, out=((32, 16), "float32"), out_buffer=nl.psum)
    assert_close(got, rounded(3 * (wide(a).T @ wide(b)), "float32"), units=64)


def test_accumulate_false_overwrites() -> None:
    a, b = data((8, 8), "float32", 5), data((8, 8), "float32", 6)

    def body(dst: Any, x: Any, y: Any) -> None:
        for _ in range(3):
            nisa.nc_matmul(dst, x, y, accumulate=False)

    got = execute(body, a, b, out=((8, 8), "float32"), out_buffer=nl.psum)
    assert_close(got, rounded(wide(a).T @ wide(b), "float32"), units=8)


def test_the_first_product_of_each_range_overwrites_what_is_there() -> None:
    a, b = data((8, 8), "float32", 7), data((8, 4), "float32", 8)

    def body(dst: Any, x: Any, y: Any) -> None:
        nisa.memset(dst, 100.0)
        nisa.nc_matmul(dst[:, 0:4], x, y)
        nisa.nc_matmul(dst[:, 4:8], x, y)
        nisa.nc_matmul(dst[:, 4:8], x, y)

    got = execute(body, a, b, out=((8, 8), "float32"), out_buffer=nl.psum)
    product = wide(a).T @ wide(b)
    assert_close(got, rounded(np.concatenate([product, 2 * product], 1), "float32"), units=16)


def test_a_partly_written_range_adds_there_only_and_warns() -> None:
    a, b = data((8, 8), "float32", 9), data((8, 8), "float32", 10)

    def body(dst: Any, x: Any, y: Any) -> None:
        nisa.nc_matmul(dst[:, 0:4], x, y[:, 0:4])
        with pytest.warns(NkiWarning, match="written a part"):
            nisa.nc_matmul(dst, x, y)

    got = execute(body, a, b, out=((8, 8), "float32"), out_buffer=nl.psum)
    product = wide(a).T @ wide(b)
    assert_close(got, rounded(product * np.repeat([2, 1], 4), "float32"), units=16)


def test_adding_to_what_nothing_has_written_warns_and_shows() -> None:
    a = data((8, 8), "float32", 9)

    def body(dst: Any, x: Any) -> None:
        with pytest.warns(NkiWarning, match="no matmul has written"):
            nisa.nc_matmul(dst, x, x, accumulate=True)

    assert np.isnan(execute(body, a, out=((8, 8), "float32"), out_buffer=nl.psum)).all()


@pytest.mark.parametrize(("target", "warns"), [("trn2", True), ("trn3", False)])
def test_adding_to_a_memset_is_undefined_before_gen4(target: str, warns: bool) -> None:
    a = data((8, 8), "float32", 9)

    def body(dst: Any, x: Any) -> None:
        nisa.memset(dst, 1.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nisa.nc_matmul(dst, x, x, accumulate=True)
        assert bool(caught) is warns

    got = execute(body, a, out=((8, 8), "float32"), out_buffer=nl.psum, target=target)
    assert_close(got, rounded(wide(a).T @ wide(a) + 1, "float32"), units=16)


def test_double_row_contracts_over_dimension_1_too() -> None:
    a, b = data((32, 2, 16), "float8_e4m3", 11), data((32, 2, 24), "float8_e4m3", 12)
    got = execute(
        lambda dst, x, y: nisa.nc_matmul(dst, x, y, perf_mode=nisa.matmul_perf_mode.double_row),
        a,
        b,
        out=((16, 24), "float32"),
        out_buffer=nl.psum,
    )
    expected = np.einsum("kdm,kdn->mn", wide(a), wide(b))
    assert_close(got, rounded(expected, "float32"), units=64)


def test_a_transpose_moves_what_is_not_finite() -> None:
    x = data((32, 16), "bfloat16", 13)
    x[3, 4], x[5, 6] = np.inf, np.nan
    identity = np.eye(32).astype(NUMPY["bfloat16"])
    got = execute(
        lambda dst, tile, ones: nisa.nc_matmul(dst, tile, ones, is_moving_onezero=True, is_transpose=True),
        x,
        identity,
        out=((16, 32), "bfloat16"),
        out_buffer=nl.psum,
    )
    assert_same(got, x.T)


@given(
    rows=st.sampled_from([1, 32, 128]),
    columns=st.sampled_from([1, 32, 100]),
    kind=st.sampled_from(["float32", "bfloat16", "int32", "uint8"]),
)
def test_nc_transpose(rows: int, columns: int, kind: str) -> None:
    x = data((rows, columns), kind, 14)
    got = execute(nisa.nc_transpose, x, out=((columns, rows), kind), out_buffer=nl.psum)
    assert_same(got, x.T)
    if max(rows, columns) <= 32:
        got = execute(
            lambda dst, tile: nisa.nc_transpose(dst, tile, engine=nisa.vector_engine), x, out=((columns, rows), kind)
        )
        assert_same(got, x.T)


def tile(shape: Any, dtype: str = "bfloat16", buffer: Any = nl.sbuf) -> Any:
    return nl.ndarray(shape, dtype, buffer)


def psum(shape: Any, dtype: str = "float32") -> Any:
    return tile(shape, dtype, nl.psum)


REFUSED = {
    "buffer": lambda: nisa.nc_matmul(tile((8, 8), "float32"), tile((8, 8)), tile((8, 8))),
    "matmul-contraction": lambda: nisa.nc_matmul(psum((8, 8)), tile((32, 8)), tile((64, 8))),
    "free-limit": lambda: nisa.nc_matmul(psum((128, 513)), tile((8, 128)), tile((8, 513))),
    "shape-match": lambda: nisa.nc_matmul(psum((8, 9)), tile((8, 8)), tile((8, 8))),
    "dtype": lambda: nisa.nc_matmul(psum((8, 8)), tile((8, 8), "int32"), tile((8, 8), "int32")),
    "dtype-match": lambda: nisa.nc_matmul(psum((8, 8)), tile((8, 8), "float32"), tile((8, 8))),
    "generation": lambda: nisa.nc_matmul(psum((8, 8)), tile((8, 8), "float8_e4m3fn"), tile((8, 8))),
    "matmul-tile": lambda: nisa.nc_matmul(
        psum((8, 8)), tile((8, 8)), tile((8, 8)), tile_position=(16, 0), tile_size=(32, 32)
    ),
    "option": lambda: nisa.nc_matmul(psum((8, 8)), tile((8, 8)), tile((8, 8)), perf_mode="triple_row"),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused(rule: str) -> None:
    with pytest.raises(NkiValidationError) as caught:
        execute(lambda dst: REFUSED[rule](), out=((8, 8), "float32"))
    assert caught.value.rule == rule
    assert caught.value.source.file == __file__


def test_the_newer_chip_takes_wider_tiles() -> None:
    a, b = data((16, 8), "bfloat16", 15), data((16, 1024), "bfloat16", 16)
    got = execute(nisa.nc_matmul, a, b, out=((8, 1024), "bfloat16"), out_buffer=nl.psum, target="trn3")
    assert_close(got, rounded(wide(a).T @ wide(b), "bfloat16"), units=2)
    with pytest.raises(NkiValidationError) as caught:
        execute(nisa.nc_matmul, a, b, out=((8, 1024), "float32"), out_buffer=nl.psum, target="trn2")
    assert (caught.value.rule, caught.value.limit, caught.value.actual) == ("free-limit", 512, 1024)


def mx_groups(values: np.ndarray) -> np.ndarray:
    return values.reshape(values.shape[0] // 8, 8, values.shape[1] // 4, 4)


@given(kind=st.sampled_from(["float8_e4m3fn", "float8_e5m2"]), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_microscaling_quantizes_groups_and_multiplies_them(kind: str, scale: float) -> None:
    a, b = data((32, 8), "bfloat16", 17, scale), data((32, 16), "bfloat16", 18)
    a[0:8, 0:4] = 0

    def body(dst: Any, packed: Any, scales: Any, x: Any, y: Any) -> None:
        right, right_scales = nl.ndarray((32, 4), f"{kind}_x4"), nl.zeros((32, 4), nl.uint8)
        nisa.memset(scales, 0)
        quantized = packed.view(f"{kind}_x4")
        nisa.quantize_mx(quantized, x, scales)
        nisa.quantize_mx(right, y, right_scales)
        product = nl.ndarray((2, 4), nl.float32, nl.psum)
        nisa.nc_matmul_mx(product, quantized, right, scales, right_scales)
        nisa.tensor_copy(dst, product)

    outs = [((2, 4), "float32"), ((32, 2), "uint32"), ((32, 2), "uint8")]
    product, packed, scales = execute(body, a, b, out=outs, target="trn3")
    largest_exponent = {"float8_e4m3fn": 8, "float8_e5m2": 15}[kind]

    def reference(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        groups = mx_groups(wide(values))
        top = np.abs(groups).max((1, 3))
        with np.errstate(divide="ignore"):
            exponent = np.where(top == 0, -127, np.floor(np.log2(top)) - (largest_exponent - 1))
        small = rounded(groups / 2.0 ** exponent[:, None, :, None], kind)
        return small, exponent

    small, exponent = reference(a)
    assert np.array_equal(packed.view(np.uint8).reshape(small.shape), small.view(np.uint8))
    assert np.array_equal(scales[0:4], (exponent + 127).astype(np.uint8))
    other, other_exponent = reference(b)
    left = wide(small) * 2.0 ** exponent[:, None, :, None]
    right = wide(other) * 2.0 ** other_exponent[:, None, :, None]
    # contraction over partitions and the four packed elements
    expected = np.einsum("gpmi,gpni->mn", left, right)
    assert_close(product, rounded(expected, "float32"), units=256)


def test_microscaling_is_newer() -> None:
    x = data((32, 8), "bfloat16", 1)
    with pytest.raises(NkiValidationError) as caught:
        execute(
            lambda dst, tile: nisa.quantize_mx(dst.view("float8_e5m2_x4"), tile, nl.zeros((32, 2), nl.uint8)),
            x,
            out=((32, 2), "uint32"),
            target="trn2",
        )
    assert caught.value.rule == "generation"
