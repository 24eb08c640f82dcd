"""Instructions of the tensor engine."""

from typing import Any

import torch

from torch_neuronx_nki import dtypes
from torch_neuronx_nki.checks import ON_CHIP, PSUM, SBUF, Checker, free
from torch_neuronx_nki.engines import Buffer, Engine, MatmulPerfMode
from torch_neuronx_nki.issue import Plan, issue, opcode
from torch_neuronx_nki.machine import current_core
from torch_neuronx_nki.simulator import accumulation, matrix, notes
from torch_neuronx_nki.simulator.accumulation import Accumulation
from torch_neuronx_nki.tensors import NkiTensor
from torch_neuronx_nki.trace import MatmulShape

_WIDE = frozenset({dtypes.float32, dtypes.tfloat32})
_OPERANDS = _WIDE | dtypes.HALF | dtypes.FP8
Pair = tuple[int, int]


@opcode(
    ">dst stationary moving accumulate",
    "is_stationary_onezero is_moving_onezero is_transpose tile_position tile_size perf_mode",
)
def _nc_matmul(
    check: Checker,
    dst: Any,
    stationary: Any,
    moving: Any,
    accumulate: Any,
    is_stationary_onezero: bool,
    is_moving_onezero: bool,
    is_transpose: bool,
    tile_position: Any,
    tile_size: Any,
    perf_mode: Any,
) -> Plan:
    for name, operand, where in (("dst", dst, PSUM), ("stationary", stationary, SBUF), ("moving", moving, SBUF)):
        check.buffer(name, check.tensor(name, operand), where)
    check.option("perf_mode", str(perf_mode), [mode.value for mode in MatmulPerfMode])
    double = str(perf_mode) == MatmulPerfMode.double_row
    limits = check.limits
    rows = stationary.shape[0]
    m, n = _columns(check, stationary, double), _columns(check, moving, double)
    if moving.shape[0] != rows:
        check.fail(
            "matmul-contraction",
            f"stationary has {rows} partitions, moving has {moving.shape[0]}",
            limit=rows,
            actual=moving.shape[0],
            advice="Both inputs contract over the partition.",
        )
    _types(check, dst, stationary, moving, is_transpose, double)
    narrow = dst.dtype == "bfloat16" and limits.moving_fmax_bf16
    if narrow:
        check.language_from((0, 5), "a bfloat16 result of more than 4096 columns") if n > limits.moving_fmax else None
    for name, count, limit in (
        ("stationary", m, limits.stationary_fmax),
        ("moving", n, limits.moving_fmax_bf16 if narrow else limits.moving_fmax),
    ):
        if count > limit:
            check.fail(
                "free-limit",
                f"{name} has {count} columns",
                limit=limit,
                actual=count,
                advice=f"Split it into tiles of at most {limit}.",
            )
    if dst.shape[0] != m or free(dst) != n:
        check.fail(
            "shape-match",
            f"dst has shape {dst.shape}, the product of {stationary.shape} and {moving.shape} has ({m}, {n})",
            limit=(m, n),
            actual=dst.shape,
            advice="dst is (columns of stationary, columns of moving).",
        )
    position, size = _array_tile(check, rows, m, tile_position, tile_size, double)
    depth = rows * (2 if double else 1)
    run = matrix.transpose(dst, stationary, moving) if is_transpose else matrix.matmul(dst, stationary, moving, double)
    plain = stationary.indirection is None and moving.indirection is None
    flat = len(stationary.shape) == 2 == len(moving.shape) == len(dst.shape)
    through = matrix.flat_matmul(dst) if plain and flat and not is_transpose else None

    def record(_dst: Any, _stationary: Any, _moving: Any, how: Accumulation) -> MatmulShape:
        return MatmulShape(
            k=depth,
            m=m,
            n=n,
            dtype=str(moving.dtype),
            performance_mode=str(perf_mode),
            is_transpose=is_transpose,
            accumulates=how is not Accumulation.OVERWRITE,
            tile_position=position,
            tile_size=size,
        )

    return Plan(run, Engine.tensor, defers=through, matmul=record, overwrites=True)


def _columns(check: Checker, tile: NkiTensor, double: bool) -> int:
    if not double:
        return free(tile)
    if len(tile.shape) < 3 or tile.shape[1] != 2:
        check.fail(
            "shape-match",
            f"double_row is given a tile of shape {tile.shape}",
            limit="(partitions, 2, columns)",
            actual=tile.shape,
            advice="Split the contraction over dimension 1 of size 2.",
        )
    return free(tile) // 2


def _types(
    check: Checker, dst: NkiTensor, stationary: NkiTensor, moving: NkiTensor, is_transpose: bool, double: bool
) -> None:
    for name, operand in (("stationary", stationary), ("moving", moving)):
        if is_transpose:
            check.not_packed(name, operand)
            continue
        check.dtype(name, operand, _OPERANDS)
        if operand.dtype == dtypes.float8_e4m3fn:
            check.generation_from(4, "float8_e4m3fn in nc_matmul")
            check.language_from((0, 4), "float8_e4m3fn in nc_matmul")
        if double and operand.dtype not in dtypes.FP8:
            check.dtype(name, operand, dtypes.FP8)
    if is_transpose:
        if dst.dtype != stationary.dtype:
            check.same_dtype(stationary=stationary, dst=dst)
        return
    pair = {stationary.dtype, moving.dtype}
    if pair & _WIDE and pair - _WIDE:
        check.fail(
            "dtype-match",
            f"stationary is {stationary.dtype}, moving is {moving.dtype}",
            limit="float32 and tfloat32 only with each other",
            actual=tuple(sorted(pair)),
            advice="Convert one with nisa.tensor_copy.",
        )
    if pair == {dtypes.float8_e4m3, dtypes.float8_e4m3fn}:
        check.fail(
            "dtype-match",
            "float8_e4m3 and float8_e4m3fn meet",
            limit="one of the two",
            actual=tuple(sorted(pair)),
            advice="Use one flavour for both.",
        )
    allowed = [dtypes.float32, *([dtypes.bfloat16] if check.generation >= 4 else [])]
    check.dtype("dst", dst, allowed)


def _array_tile(check: Checker, rows: int, m: int, position: Any, size: Any, double: bool) -> tuple[Pair, Pair]:
    if not position and not size:
        return (0, 0), (128, 128)
    if not position or not size:
        check.fail(
            "matmul-tile",
            "one of tile_position and tile_size is given",
            limit="both or neither",
            actual=(position, size),
            advice="Give both.",
        )
    least = check.limits.matmul_tile_min
    sizes = tuple(width for width in (32, 64, 128) if width >= least)
    for what, at, wide, used in (("row", position[0], size[0], rows), ("column", position[1], size[1], m)):
        if wide not in sizes or at % wide or not 0 <= at <= 128 - wide or used > wide:
            check.fail(
                "matmul-tile",
                f"the {what} tile is {wide} from {at}, for {used} in use",
                limit=sizes,
                actual=(at, wide),
                advice=f"Sizes are {sizes}, positions multiples of the size.",
            )
    if double and size[1] != 128:
        check.fail(
            "matmul-tile",
            "double_row is given a column tile",
            limit=128,
            actual=size[1],
            advice="Use whole columns with double_row.",
        )
    return (position[0], position[1]), (size[0], size[1])


def nc_matmul(
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: Any = (),
    tile_size: Any = (),
    perf_mode: MatmulPerfMode | str = MatmulPerfMode.none,
    name: str | None = None,
) -> Any:
    """``dst = stationary.T @ moving`` in float32, or added to ``dst``; both inputs in SBUF, the result in PSUM.

    ``accumulate=None`` overwrites what no matmul has written since it was allocated, and adds to the rest. Stationary
    has at most 128 columns, moving 512 (before gen4), 4096, or 8192 for a bfloat16 result.
    """
    how = accumulation.choose(current_core(), dst, accumulate)
    parameters = (
        is_stationary_onezero,
        is_moving_onezero,
        is_transpose,
        tuple(tile_position) if tile_position else (),
        tuple(tile_size) if tile_size else (),
        perf_mode if isinstance(perf_mode, str) else str(perf_mode),
    )
    return issue(_nc_matmul, (dst, stationary, moving, how), parameters, name)


@opcode(">dst data", "engine")
def _nc_transpose(check: Checker, dst: Any, data: Any, engine: Engine) -> Plan:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_dtype(data=data, dst=dst)
    rows, columns = data.shape[0], free(data)
    fits_vector = rows <= 32 and columns <= 32
    fits_tensor = data.buffer is Buffer.sbuf and dst.buffer is Buffer.psum
    ran = check.engine(engine, (Engine.tensor, Engine.vector))
    if engine == Engine.unknown and not fits_tensor:
        ran = Engine.vector
    if ran is Engine.tensor:
        check.buffer("data", data, SBUF)
        check.buffer("dst", dst, PSUM)
    limit = 128 if ran is Engine.tensor else 32
    if (rows > limit or columns > limit) and not (ran is Engine.vector and fits_vector):
        check.fail(
            "free-limit",
            f"data is {rows} by {columns} on the {ran.name} engine",
            limit=(limit, limit),
            actual=(rows, columns),
            advice=f"Transpose tiles of at most {limit} by {limit}"
            + ("." if limit == 128 else ", or write to PSUM with the tensor engine."),
        )
    if dst.shape[0] != columns or free(dst) != rows:
        check.fail(
            "shape-match",
            f"dst has shape {dst.shape}",
            limit=(columns, rows),
            actual=dst.shape,
            advice="dst is (elements per partition, partitions) of data.",
        )
    target = dst.shape

    def run(out: torch.Tensor, x: torch.Tensor) -> None:
        out.copy_(x.reshape(rows, columns).T.reshape(target))

    def run_matrix(out: torch.Tensor, x: torch.Tensor) -> None:
        out.copy_(x.t())

    if not len(data.shape) == 2 == len(target):
        return Plan(run, ran, overwrites=True)
    held = data.indirection is None and data.codec is dst.codec and notes.can_hold(dst)
    return Plan(run_matrix, ran, defers=notes.transpose if held else None, overwrites=True)


def nc_transpose(dst: NkiTensor, data: NkiTensor, engine: Engine = Engine.unknown, name: str | None = None) -> Any:
    """Exchange partitions and elements.

    Engines: tensor (128 by 128, from SBUF to PSUM), vector (32 by 32).
    """
    return issue(_nc_transpose, (dst, data), (engine,), name)
