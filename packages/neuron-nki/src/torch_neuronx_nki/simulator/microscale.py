"""Microscaled numbers: four small floats in an element, one power of two for 8 partitions by 4 of them.

The scale of a group is ``2 ** (floor(log2(largest)) - (Emax - 1))`` with the type's largest exponent Emax, which leaves
one bit of headroom; a group of zeros has ``2 ** -127``. Scales are stored as the exponent plus 127.
"""

import torch

from torch_neuronx_nki.dtypes import Dtype, float4_e2m1fn_x4, float8_e4m3fn_x4, float8_e5m2_x4

_EMAX = {float8_e4m3fn_x4: 8, float8_e5m2_x4: 15}
_ELEMENT = {float8_e4m3fn_x4: torch.float8_e4m3fn, float8_e5m2_x4: torch.float8_e5m2}
_LARGEST = {float8_e4m3fn_x4: 448.0, float8_e5m2_x4: 57344.0}
_FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
_PARTITIONS, _ELEMENTS = 8, 4


def quantize(values: torch.Tensor, kind: Dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``values`` (partitions, 4 n) packed as (partitions, n) and the biased exponents (partitions / 8, n)."""
    rows, columns = values.shape
    grouped = values.reshape(rows // _PARTITIONS, _PARTITIONS, columns // _ELEMENTS, _ELEMENTS)
    largest = grouped.abs().amax((1, 3))
    exponent = torch.frexp(largest).exponent - 1 - (_EMAX[kind] - 1)
    exponent = torch.where(largest == 0, -127, exponent.clamp(-127, 127))
    scaled = torch.ldexp(grouped, -exponent[:, None, :, None])
    small = scaled.clamp(-_LARGEST[kind], _LARGEST[kind]).to(_ELEMENT[kind])
    packed = small.reshape(rows, columns).contiguous().view(torch.uint8).view(torch.int32)
    return packed, (exponent + 127).to(torch.uint8)


def dequantize(packed: torch.Tensor, scales: torch.Tensor, kind: Dtype) -> torch.Tensor:
    """Return packed elements (partitions, n) as float32 (4 partitions, n), one row per contracted element."""
    rows, columns = packed.shape
    raw = packed.contiguous().view(torch.uint8)
    if kind is float4_e2m1fn_x4:
        codes = torch.stack([raw & 15, raw >> 4], -1).reshape(rows, columns, _ELEMENTS)
        values = _FP4[codes.int()]
    else:
        values = raw.view(_ELEMENT[kind]).float().reshape(rows, columns, _ELEMENTS)
    flat = scales.reshape(scales.shape[0], -1)
    groups = torch.arange(rows) // _PARTITIONS
    exponent = flat[groups // 4 * 32 + groups % 4].int() - 127
    return torch.ldexp(values, exponent[:, :, None]).permute(0, 2, 1).reshape(rows * _ELEMENTS, columns)
