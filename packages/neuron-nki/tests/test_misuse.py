"""Whatever a function of the language is given, what comes out is a result or an error of the package with the line."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from torch_neuronx.errors import NeuronError
from torch_neuronx_nki import NkiLaunchError, NkiTypeError, NkiValidationError
from torch_neuronx_nki import collectives as ncc
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit, simulate
from torch_neuronx_nki.ops import Operator

P, F = 32, 16
HUGE = 2**62
PLAIN: tuple[Any, ...] = (
    None, "x", b"", 3, 0, -1, HUGE, -HUGE, 2**70, 2.5, float("nan"), float("inf"), True, 1j, (), [], [3], [[3]],
    [[1, 2, 3]], (0, 0), (1, 3), (-1, -1), [["a", "b"]], [None], {}, {"a": 1}, object(), Ellipsis, slice(None), int,
    np.float32(1.5), np.ones(3), torch.ones(2), nl.add, nl.exp, nl.float32, "float32", nl.psum, nisa.engine.dma,
    lambda: None,
)  # fmt: skip


def tile(*shape: int, dtype: Any = nl.float32, buffer: Any = nl.sbuf) -> Any:
    return nl.zeros(shape or (P, F), dtype, buffer)


def tensors() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Tensors that are wrong in most places."""
    yield "one partition", lambda: tile(1, 1)
    yield "rank 3", lambda: tile(P, 2, 3)
    yield "rank 1", lambda: tile(7, buffer=nl.hbm)
    yield "hbm", lambda: tile(P, F, buffer=nl.shared_hbm)
    yield "psum", lambda: tile(P, F, buffer=nl.psum)
    yield "int32", lambda: tile(P, F, dtype=nl.int32)
    yield "uint8", lambda: tile(P, 1, dtype=nl.uint8)
    yield "packed", lambda: tile(P, F, dtype=nl.float8_e4m3fn_x4)
    yield "by row", lambda: tile(P, F, buffer=nl.hbm).ap([[F, P], [1, F]], vector_offset=tile(P, 1, dtype=nl.int32))
    yield "register", lambda: nisa.register_alloc(5)
    yield "list of tiles", lambda: [tile(), tile()]


@dataclass(frozen=True)
class Case:
    """A function, arguments that are right for it, and the chip."""

    call: Callable[..., Any]
    right: dict[str, Callable[[], Any]]
    target: str = "trn3"
    skipped: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values that are right, and take for ever."""


def a(value: Any) -> Callable[[], Any]:
    return lambda: value


def col(dtype: Any = nl.float32) -> Callable[[], Any]:
    return lambda: tile(P, 1, dtype=dtype)


def of(dtype: Any = nl.float32, *shape: int, buffer: Any = nl.sbuf) -> Callable[[], Any]:
    return lambda: tile(*shape, dtype=dtype, buffer=buffer)


def group() -> Any:
    return ncc.ReplicaGroup([[0]])


def some(dtype: Any = nl.float32) -> Callable[[], Any]:
    return lambda: [tile(P, F, dtype=dtype, buffer=nl.hbm)]


def channels() -> Any:
    return [[tile(P, F, buffer=nl.hbm)]]


def metadata() -> Any:
    made = nl.ndarray((3, 1), nl.uint32, nl.hbm)
    rows = nl.zeros((3, 1), nl.uint32)
    nisa.dma_copy(made, rows)
    return made


T = tile
ISA: dict[str, dict[str, Any]] = {
    "activate2": dict(dst=T, op=a(nl.exp), data=T, imm0=a(1.0), imm1=col(), op0=a(nl.add), op1=a(nl.multiply),
                      relu_param=a(0.5), reverse0=a(True), reduce_op=a(nl.add), reduce_res=col(), reduce_cmd=a(3)),
    "activation": dict(dst=T, op=a(nl.exp), data=T, bias=col(), scale=a(2.0), reduce_op=a(nl.add), reduce_res=col(),
                       reduce_cmd=a(3)),
    "activation_reduce": dict(dst=T, op=a(nl.exp), data=T, reduce_op=a(nl.add), reduce_res=col(), bias=col(),
                              scale=a(1.0)),
    "affine_select": dict(dst=T, pattern=a([[1, F]]), channel_multiplier=a(1), on_true_tile=T, on_false_value=a(0.0),
                          cmp_op=a(nl.greater), offset=a(0)),
    "bn_aggr": dict(dst=of(nl.float32, P, 2), data=of(nl.float32, P, 6)),
    "bn_stats": dict(dst=of(nl.float32, P, 6), data=T),
    "composed": dict(dst=T, op=a(nl.exp), data=T),
    "core_barrier": dict(data=of(nl.float32, P, F, buffer=nl.shared_hbm), cores=a((0,)), engine=a(nisa.engine.gpsimd)),
    "dma_compute": dict(dst=T, srcs=lambda: [T(), T()], reduce_op=a(nl.add), scales=a([1.0, 1.0])),
    "dma_copy": dict(dst=T, src=of(nl.float32, P, F, buffer=nl.hbm), priority=a(None), oob_mode=a(0), dge_mode=a(0),
                     engine=a(nisa.engine.unknown)),
    "dma_transpose": dict(dst=of(nl.bfloat16, F, P), src=of(nl.bfloat16), axes=a((1, 0)), priority=a(None),
                          dge_mode=a(0), oob_mode=a(0)),
    "dropout": dict(dst=T, data=T, prob=a(0.5)),
    "exponential": dict(dst=T, src=T, max_value=a(0.0), reduce_res=col(), reduce_cmd=a(3), reduce_init=a(0.0)),
    "get_nc_sub_version": {},
    "get_nc_version": {},
    "iota": dict(dst=of(nl.int32), pattern=a([[1, F]]), offset=a(0), channel_multiplier=a(1)),
    "local_gather": dict(dst=of(nl.float32, P, 32), src_buffer=T, index=of(nl.uint16, P, 2), num_elem_per_idx=a(1),
                         num_valid_indices=a(16)),
    "max8": dict(dst=of(nl.float32, P, 8), src=T),
    "memset": dict(dst=T, value=a(1.0), engine=a(nisa.engine.unknown)),
    "nc_find_index8": dict(dst=of(nl.uint32, P, 8), data=T, vals=of(nl.float32, P, 8)),
    "nc_match_replace8": dict(dst=T, data=T, vals=of(nl.float32, P, 8), imm=a(0.0), dst_idx=of(nl.uint32, P, 8)),
    "nc_matmul": dict(dst=of(nl.float32, F, F, buffer=nl.psum), stationary=T, moving=T, is_transpose=a(False),
                      accumulate=a(False), tile_position=a((0, 0)), tile_size=a((32, 32)), perf_mode=a("none")),
    "nc_matmul_mx": dict(dst=of(nl.float32, F, F, buffer=nl.psum), stationary=of(nl.float8_e4m3fn_x4),
                         moving=of(nl.float8_e4m3fn_x4), stationary_scale=of(nl.uint8), moving_scale=of(nl.uint8),
                         tile_position=a(()), tile_size=a(()), accumulate=a(False)),
    "nc_n_gather": dict(dst=T, data=T, indices=of(nl.uint32)),
    "nc_stream_shuffle": dict(dst=T, src=T, shuffle_mask=a(list(range(32)))),
    "nc_transpose": dict(dst=of(nl.float32, F, P), data=T, engine=a(nisa.engine.vector)),
    "nonzero_with_count": dict(dst=of(nl.int32, P, F + 1), src=T, index_offset=a(0), padding_val=a(-1)),
    "quantize_mx": dict(dst=of(nl.float8_e4m3fn_x4, P, 4), src=of(nl.bfloat16), dst_scale=of(nl.uint8, P, 4)),
    "rand2": dict(dst=T, low=a(0.0), high=a(1.0)),
    "rand_get_state": dict(dst=of(nl.uint32), engine=a(nisa.engine.unknown)),
    "rand_set_state": dict(src_seeds=of(nl.uint32), engine=a(nisa.engine.unknown)),
    "random_uniform": dict(dst=T),
    "range_select": dict(dst=T, on_true_tile=T, comp_op0=a(nl.greater_equal), comp_op1=a(nl.less), bound0=col(),
                         bound1=col(), reduce_cmd=a(3), reduce_res=col(), range_start=a(0)),
    "reciprocal": dict(dst=T, data=T),
    "register_alloc": dict(x=a(3)),
    "register_load": dict(dst=lambda: nisa.register_alloc(), src=of(nl.int32, 1, 1)),
    "register_move": dict(dst=lambda: nisa.register_alloc(), src=a(3)),
    "register_store": dict(dst=of(nl.int32, 1, 1), src=lambda: nisa.register_alloc(4)),
    "rng": dict(dst=of(nl.uint32), engine=a(nisa.engine.unknown)),
    "scalar_tensor_tensor": dict(dst=T, data=T, op0=a(nl.add), operand0=a(1.0), op1=a(nl.multiply), operand1=T),
    "seed": dict(value=a(7)),
    "select_reduce": dict(dst=T, predicate=of(nl.uint8), on_true=T, on_false=a(0.0), reduce_res=col(), reduce_cmd=a(3)),
    "sendrecv": dict(src=T, dst=T, send_to_rank=a(0), recv_from_rank=a(0), pipe_id=a(0), dma_engine=a(1)),
    "sequence_bounds": dict(dst=of(nl.float32, 1, 2, F), segment_ids=of(nl.float32, 1, F)),
    "set_rng_seed": dict(seeds=of(nl.uint32, 1, 1), engine=a(nisa.engine.unknown)),
    "tensor_copy": dict(dst=T, src=T, engine=a(nisa.engine.unknown)),
    "tensor_copy_predicated": dict(dst=T, src=T, predicate=of(nl.uint8), reverse_pred=a(False)),
    "tensor_partition_reduce": dict(dst=of(nl.float32, 1, F), op=a(nl.add), data=T),
    "tensor_reduce": dict(dst=col(), op=a(nl.add), data=T, axis=a(1), negate=a(False)),
    "tensor_scalar": dict(dst=T, data=T, op0=a(nl.add), operand0=a(1.0), reverse0=a(False), op1=a(nl.multiply),
                          operand1=col(), engine=a(nisa.engine.unknown)),
    "tensor_scalar_cumulative": dict(dst=T, src=T, op0=a(nl.add), op1=a(nl.add), imm0=a(0.0), imm1=a(1.0),
                                     reduce_cmd=a(3)),
    "tensor_scalar_reduce": dict(dst=T, data=T, op0=a(nl.add), operand0=a(1.0), reduce_op=a(nl.add), reduce_res=col(),
                                 reduce_cmd=a(3), reduce_init=a(0.0)),
    "tensor_tensor": dict(dst=T, data1=T, data2=T, op=a(nl.add), engine=a(nisa.engine.unknown)),
    "tensor_tensor_scan": dict(dst=T, data0=T, data1=T, initial=a(0.0), op0=a(nl.multiply), op1=a(nl.add)),
    "topk": dict(val_dst=of(nl.bfloat16, P, 8), idx_dst=of(nl.uint32, P, 8), src=of(nl.bfloat16), n=a(8)),
}  # fmt: skip
SHAPE = dict(shape=a((P, F)), dtype=a(nl.float32), buffer=a(nl.sbuf), name=a(""))
RANGE = dict(start=a(0), stop=a(4), step=a(1))
REDUCED = dict(x=T, axis=a(1), dtype=a(nl.float32), keepdims=a(False))
LANGUAGE: dict[str, dict[str, Any]] = {
    "affine_range": RANGE, "sequential_range": RANGE, "static_range": RANGE, "range": RANGE,
    "all": REDUCED, "max": REDUCED, "mean": REDUCED, "min": REDUCED, "prod": REDUCED, "sum": REDUCED, "var": REDUCED,
    "broadcast_to": dict(x=col(), shape=a((P, F)), dtype=a(nl.float32)),
    "device_print": dict(prefix=a(""), x=a(None)),
    "dropout": dict(x=T, rate=a(0.5), dtype=a(nl.float32)),
    "ds": dict(start=a(0), size=a(4)),
    "empty_like": dict(x=T, dtype=a(nl.float32), buffer=a(nl.sbuf)),
    "expand_dims": dict(x=T, axis=a(1)),
    "fori_loop": dict(lower=a(0), upper=a(3), body=a(lambda i: None), step=a(1)),
    "full": dict(SHAPE, fill_value=a(1.0)),
    "gather_flattened": dict(data=T, indices=of(nl.uint32)),
    "is_hbm": dict(buffer=a(nl.hbm)), "is_on_chip": dict(buffer=a(nl.hbm)), "is_psum": dict(buffer=T),
    "is_sbuf": dict(buffer=a(nl.hbm)),
    "load": dict(src=of(nl.float32, P, F, buffer=nl.hbm), dtype=a(nl.float32)),
    "load_transpose2d": dict(src=of(nl.float32, P, F, buffer=nl.hbm), dtype=a(nl.float32)),
    "matmul": dict(x=T, y=of(nl.float32, F, 8), transpose_x=a(False)),
    "ndarray": dict(SHAPE, address=a((0, 0))),
    "no_reorder": {},
    "num_programs": dict(axes=a(0)),
    "ones": SHAPE,
    "program_id": dict(axis=a(0)),
    "program_ndim": {},
    "rand": dict(shape=a((P, F)), dtype=a(nl.float32)),
    "random_seed": dict(seed=a(1)),
    "rms_norm": dict(x=T, w=T, axis=a(1), n=a(F), epsilon=a(1e-6), dtype=a(nl.float32)),
    "shared_constant": dict(value=a(np.ones((P, F), np.float32)), dtype=a(nl.float32)),
    "shared_identity_matrix": dict(n=a(8), dtype=a(nl.uint8)),
    "softmax": dict(x=T, axis=a(-1), dtype=a(nl.float32)),
    "store": dict(dst=of(nl.float32, P, F, buffer=nl.hbm), value=T),
    "transpose": dict(x=T, dtype=a(nl.float32)),
    "where": dict(condition=of(nl.uint8), x=T, y=a(0.0), dtype=a(nl.float32)),
    "while_loop": dict(init=a(0), body=a(lambda x: 0)),
    "zeros": SHAPE,
    "zeros_like": dict(x=T, dtype=a(nl.float32), buffer=a(nl.sbuf)),
}  # fmt: skip
ENDLESS = {"fori_loop": {"upper": (HUGE, 2**70), "lower": (-HUGE,)}}
GONE = {"dynamic_range"}
"""Gone in the version of the language that runs."""
COLLECTIVES: dict[str, dict[str, Any]] = {
    "all_reduce": dict(srcs=some(), dsts=some(), replica_group=group, op=a(nl.add)),
    "all_gather": dict(srcs=some(), dsts=some(), replica_group=group, collective_dim=a(0)),
    "reduce_scatter": dict(srcs=some(), dsts=some(), replica_group=group, collective_dim=a(0), op=a(nl.add)),
    "all_to_all": dict(srcs=some(), dsts=some(), replica_group=group, collective_dim=a(0), priority=a(None)),
    "all_gather_v": dict(srcs=some(), dsts=some(), replica_group=group, metadata_tensor=metadata),
    "all_to_all_v": dict(srcs=some(), dsts=some(), replica_group=group, metadata_tensor=metadata),
    "collective_permute": dict(srcs=some(), dsts=some(), source_target_pairs=a([(0, 0)])),
    "collective_permute_implicit": dict(srcs_by_channel=channels, dsts_by_channel=channels, replica_group=group,
                                        channel_ids=a((0,))),
    "collective_permute_implicit_reduce": dict(srcs0_by_channel=channels, srcs1_by_channel=channels,
                                               dsts_by_channel=channels, replica_group=group, op=a(nl.add)),
    "collective_permute_implicit_current_processing_rank_id": dict(iteration_id=a(0), replica_group=group,
                                                                   channel_id=a(0)),
    "rank_id": {},
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "__getitem__": dict(index=a((slice(0, 4), slice(None)))),
    "ap": dict(pattern=a([[F, P], [1, F]]), offset=a(0), indirect_dim=a(0), dtype=a(nl.int32)),
    "broadcast_to": dict(shape=a((P, F))),
    "broadcast": dict(dim=a(2), size=a(3)),
    "expand_dim": dict(dim=a(1)),
    "flatten_dims": dict(start=a(1), end=a(1)),
    "indirect": dict(index=of(nl.uint16), num_elem=a(16)),
    "permute": dict(dims=a((0, 1))),
    "rearrange": dict(source=a(("p", "f")), target=a(("p", "f")), fixed_sizes=a({"p": P})),
    "reshape": dict(shape=a((P, 4, 4))),
    "reshape_dim": dict(dim=a(1), shape=a((4, 4))),
    "select": dict(dim=a(1), index=a(3)),
    "slice": dict(dim=a(1), start=a(0), end=a(4), step=a(1)),
    "squeeze_dim": dict(dim=a(2)),
    "view": dict(dtype=a(nl.int32)),
}  # fmt: skip


def _operator(op: Operator) -> Case:
    operand = of(nl.int32) if op.kind == "bits" else T
    if op in BINARY:
        return Case(lambda x, y: op(x, y), {"x": operand, "y": operand})
    return Case(lambda x: op(x), {"x": operand})


OPERATORS = [value for name in nl.__all__ if isinstance(value := getattr(nl, name), Operator)]
BINARY = {op for op in OPERATORS if op.kind != "activation" and op not in (nl.invert, nl.copy)}


def _method(name: str) -> Callable[..., Any]:
    shape = (P, F, 1) if name in ("broadcast", "squeeze_dim") else (P, F)
    return lambda **given: getattr(tile(*shape), name)(**given)


CASES: dict[str, Case] = {
    **{f"nisa.{name}": Case(getattr(nisa, name), right) for name, right in ISA.items()},
    **{f"nl.{name}": Case(getattr(nl, name), right, skipped=ENDLESS.get(name, {})) for name, right in LANGUAGE.items()},
    **{f"ncc.{name}": Case(getattr(ncc, name), right) for name, right in COLLECTIVES.items()},
    **{f"NkiTensor.{name}": Case(_method(name), right) for name, right in METHODS.items()},
    **{f"nl.{op.name}()": _operator(op) for op in OPERATORS},
}


def attempt(case: Case, changed: dict[str, Callable[[], Any]]) -> BaseException | None:
    """Call the function of ``case`` in a kernel and return what it raises."""

    def kernel() -> None:
        given = {name: make() for name, make in (case.right | changed).items()}
        nonlocal inside
        inside = True
        case.call(**given)

    inside = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            simulate(jit(kernel), target=case.target)()
    except Exception as error:
        if not inside:
            raise
        return error
    return None


def wrong_values(case: Case, name: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    for value in PLAIN:
        if not any(value is other or (type(value) is int and value == other) for other in case.skipped.get(name, ())):
            yield repr(value), a(value)
    yield from tensors()


def test_every_public_function_has_arguments_here() -> None:
    def public(module: Any) -> set[str]:
        names = getattr(module, "__all__", None) or vars(module)
        found = {name for name in names if not name.startswith("_") and inspect.isfunction(getattr(module, name))}
        return {name for name in found if module is not ncc or getattr(module, name).__module__ == module.__name__}

    assert public(nisa) == set(ISA)
    assert public(nl) - GONE == set(LANGUAGE)
    assert public(ncc) == set(COLLECTIVES)


@pytest.mark.parametrize("name", CASES)
def test_right_arguments_are_taken(name: str) -> None:
    error = attempt(CASES[name], {})
    assert error is None, error


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_argument_is_an_error_of_the_package_with_the_line(name: str) -> None:
    case, wrong = CASES[name], []
    for parameter in case.right:
        for label, value in wrong_values(case, parameter):
            error = attempt(case, {parameter: value})
            if error is None or isinstance(error, NkiTypeError | NkiLaunchError):
                continue
            place = error.source if isinstance(error, NkiValidationError) else None
            if not isinstance(error, NeuronError) or place is None or place.file != __file__:
                wrong.append((parameter, label, f"{type(error).__name__}: {error}"))
    assert not wrong, "\n".join(map(str, wrong))


# What is told, and what is left as it is ------------------------------------------------------------------------------


def raised(kernel: Callable[..., Any], *args: Any, lnc: int = 1, **settings: Any) -> BaseException:
    try:
        simulate(jit(kernel)[lnc] if lnc > 1 else jit(kernel), **settings)(*args)
    except Exception as error:
        return error
    pytest.fail("nothing is raised")


@pytest.mark.parametrize("lnc", [1, 2])
def test_the_message_names_the_function_its_arguments_and_the_line(lnc: int) -> None:
    def kernel() -> None:
        nisa.iota(tile(P, F, dtype=nl.int32), pattern=3)

    error = raised(kernel, lnc=lnc)
    assert isinstance(error, NkiValidationError)
    assert error.rule == "argument-form"
    assert error.source.line == kernel.__code__.co_firstlineno + 1
    assert "iota cannot take dst=<int32 [32, 16] in sbuf>, pattern=3, offset=0, " in str(error)
    assert "TypeError: 'int' object is not iterable" in str(error)
    assert isinstance(error.__cause__, TypeError)


def test_methods_and_operators_are_named_as_kernels_write_them() -> None:
    assert "NkiTensor.reshape cannot take shape=None: " in str(raised(lambda: tile().reshape(None)))
    assert "nl.add cannot take <float32 [32, 16] in sbuf>, dtype=None: IndexError" in str(
        raised(lambda: nl.add(tile()))
    )


def test_an_argument_that_cannot_be_shown_is_named_by_its_type() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ZeroDivisionError

    assert "start=<Odd>" in str(raised(lambda: nl.affine_range(Odd())))


def test_what_the_kernel_itself_raises_stays() -> None:
    assert type(raised(lambda: int("x"))) is ValueError
    assert type(raised(lambda: torch.ones(2) @ torch.ones(3))) is RuntimeError
    assert type(raised(lambda: nisa.iota())) is TypeError
    assert type(raised(lambda: nisa.memset(tile(), 0.0, colour="red"))) is TypeError
    assert type(raised(lambda: [][0])) is IndexError


def test_what_a_function_raises_that_the_kernel_passes_stays() -> None:
    def body(index: Any) -> None:
        raise KeyError(index)

    assert type(raised(lambda: nl.fori_loop(0, 3, body))) is KeyError
    assert type(raised(lambda: nl.while_loop(1, lambda _: torch.ones(2) @ torch.ones(3)))) is RuntimeError
    assert isinstance(raised(lambda: nl.fori_loop(0, 3, None)), NkiValidationError)


def test_what_an_observer_raises_stays() -> None:
    def observer(_: Any) -> None:
        raise ValueError("full")

    assert str(raised(lambda: tile(), observers=[observer])) == "full"


def test_a_kernel_can_catch_what_python_says() -> None:
    def kernel() -> None:
        with pytest.raises(TypeError):
            nisa.iota(tile(P, F, dtype=nl.int32), pattern=3)

    simulate(jit(kernel))()


def test_memory_that_runs_out_stays_so() -> None:
    def kernel() -> None:
        raise torch.OutOfMemoryError("none left")

    assert type(raised(kernel)) is torch.OutOfMemoryError
