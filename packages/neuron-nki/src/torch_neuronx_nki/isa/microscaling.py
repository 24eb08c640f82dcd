"""Instructions on microscaled types: groups of 32 small floats that share a power of two (gen4)."""

from typing import Any

import torch

from torch_neuronx_nki import dtypes
from torch_neuronx_nki.checks import PSUM, SBUF, Checker, free
from torch_neuronx_nki.engines import Engine
from torch_neuronx_nki.issue import Plan, issue, opcode
from torch_neuronx_nki.machine import current_core
from torch_neuronx_nki.simulator import accumulation, microscale
from torch_neuronx_nki.simulator.accumulation import Accumulation, How
from torch_neuronx_nki.simulator.matrix import add_or_set
from torch_neuronx_nki.tensors import NkiTensor
from torch_neuronx_nki.trace import MatmulShape

_SCALES = (dtypes.uint8, dtypes.float8_e8m0fnu)


def _groups(check: Checker, name: str, tensor: NkiTensor) -> None:
    if tensor.shape[0] % 32 or tensor.shape[0] > 128:
        check.fail(
            "shape-match",
            f"{name} has {tensor.shape[0]} partitions",
            limit="a multiple of 32, at most 128",
            actual=tensor.shape[0],
            advice="Microscaling works on whole groups of 32 partitions.",
        )


@opcode(">dst src >dst_scale")
def _quantize_mx(check: Checker, dst: Any, src: Any, dst_scale: Any) -> Plan:
    check.generation_from(4, "quantize_mx")
    for name, operand in (("dst", dst), ("src", src), ("dst_scale", dst_scale)):
        check.buffer(name, check.tensor(name, operand), SBUF)
    check.dtype("src", src, (dtypes.bfloat16, dtypes.float16))
    check.dtype("dst", dst, (dtypes.float8_e5m2_x4, dtypes.float8_e4m3fn_x4))
    check.dtype("dst_scale", dst_scale, _SCALES)
    _groups(check, "src", src)
    check.same_partitions(dst=dst, src=src)
    count = free(src)
    if count % 4 or free(dst) * 4 != count:
        check.fail(
            "shape-match",
            f"dst has {free(dst)} elements per partition, src has {count}",
            limit=count // 4,
            actual=free(dst),
            advice="Each element of dst packs four of src.",
        )
    if free(dst_scale) != free(dst) or dst_scale.shape[0] < src.shape[0] - 28:
        check.fail(
            "shape-match",
            f"dst_scale has shape {dst_scale.shape}",
            limit=(src.shape[0], free(dst)),
            actual=dst_scale.shape,
            advice="Scales are in the first 4 partitions of each 32.",
        )
    load, kind, target, partitions = src.codec.load, dst.dtype, dst.shape, src.shape[0]

    def run(out: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> None:
        packed, exponents = microscale.quantize(load(x).reshape(partitions, -1), kind)
        out.copy_(packed.reshape(target))
        raw = scale.view(torch.uint8)
        for row in range(exponents.shape[0]):  # 4 groups of 8 partitions in each 32
            raw[row // 4 * 32 + row % 4] = exponents[row].reshape(raw.shape[1:])

    return Plan(run, Engine.vector)


def quantize_mx(dst: NkiTensor, src: NkiTensor, dst_scale: NkiTensor, name: str | None = None) -> Any:
    """Quantize groups of 8 partitions by 4 elements to float8 with one power of two each. Engine: vector, from gen4."""
    return issue(_quantize_mx, (dst, src, dst_scale), (), name)


@opcode(">dst stationary moving stationary_scale moving_scale accumulate", "tile_position tile_size")
def _nc_matmul_mx(
    check: Checker,
    dst: Any,
    stationary: Any,
    moving: Any,
    stationary_scale: Any,
    moving_scale: Any,
    accumulate: Any,
    tile_position: Any,
    tile_size: Any,
) -> Plan:
    check.generation_from(4, "nc_matmul_mx")
    check.buffer("dst", check.tensor("dst", dst), PSUM)
    packed = (dtypes.float8_e5m2_x4, dtypes.float8_e4m3fn_x4, dtypes.float4_e2m1fn_x4)
    for name, operand, kinds in (
        ("stationary", stationary, packed),
        ("moving", moving, packed),
        ("stationary_scale", stationary_scale, _SCALES),
        ("moving_scale", moving_scale, _SCALES),
    ):
        check.buffer(name, check.tensor(name, operand), SBUF)
        check.dtype(name, operand, kinds)
    _groups(check, "stationary", stationary)
    rows, m, n = stationary.shape[0], free(stationary), free(moving)
    if moving.shape[0] != rows:
        check.fail(
            "matmul-contraction",
            f"stationary has {rows} partitions, moving has {moving.shape[0]}",
            limit=rows,
            actual=moving.shape[0],
            advice="Both inputs contract over the partition.",
        )
    limits = check.limits
    check.free_limit("stationary", stationary, limits.stationary_fmax)
    if m % 2:
        check.fail(
            "free-limit", f"stationary has {m} columns", limit="even", actual=m, advice="Use an even number of columns."
        )
    check.dtype("dst", dst, (dtypes.float32, dtypes.bfloat16))
    check.free_limit("moving", moving, limits.moving_fmax if dst.dtype == "float32" else limits.moving_fmax_bf16)
    if dst.shape[0] != m or free(dst) != n:
        check.shape("dst", dst, (m, n))
    for name, scale, count in (("stationary_scale", stationary_scale, m), ("moving_scale", moving_scale, n)):
        if free(scale) != count or scale.shape[0] < rows - 28:
            check.fail(
                "shape-match",
                f"{name} has shape {scale.shape}",
                limit=(rows, count),
                actual=scale.shape,
                advice="Scales are in the first 4 partitions of each 32.",
            )
    if bool(tile_position) != bool(tile_size) or (tile_size and tile_size[1] != 128):
        check.fail(
            "matmul-tile",
            f"tile_position is {tile_position}, tile_size is {tile_size}",
            limit="both or neither, 128 columns",
            actual=(tile_position, tile_size),
            advice="Only rows of the array can be tiled.",
        )
    load, save, target = dst.codec.load, dst.codec.save, dst.shape
    left_kind, right_kind = stationary.dtype, moving.dtype

    def run(
        out: torch.Tensor, s: torch.Tensor, m_: torch.Tensor, s_scale: torch.Tensor, m_scale: torch.Tensor, how: How
    ) -> None:
        left = microscale.dequantize(s.reshape(rows, -1), s_scale.view(torch.uint8), left_kind)
        right = microscale.dequantize(m_.reshape(rows, -1), m_scale.view(torch.uint8), right_kind)
        add_or_set(out, torch.mm(left.T, right).reshape(target), how, load, save)

    def record(*operands: Any) -> MatmulShape:
        return MatmulShape(
            k=rows * 4,
            m=m,
            n=n,
            dtype=str(right_kind),
            performance_mode="mx",
            is_transpose=False,
            accumulates=operands[-1] is not Accumulation.OVERWRITE,
            tile_position=tuple(tile_position) or (0, 0),
            tile_size=tuple(tile_size) or (128, 128),
        )

    return Plan(run, Engine.tensor, matmul=record)


def nc_matmul_mx(
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    stationary_scale: NkiTensor,
    moving_scale: NkiTensor,
    tile_position: Any = (),
    tile_size: Any = (),
    accumulate: bool | None = None,
    name: str | None = None,
) -> Any:
    """``dst = stationary.T @ moving`` of packed types with scales, over 4 elements per partition. Tensor, from gen4."""
    how = accumulation.choose(current_core(), dst, accumulate)
    operands = (dst, stationary, moving, stationary_scale, moving_scale, how)
    return issue(_nc_matmul_mx, operands, (tuple(tile_position), tuple(tile_size)), name)
