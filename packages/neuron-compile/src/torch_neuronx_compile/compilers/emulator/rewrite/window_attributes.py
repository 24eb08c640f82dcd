"""The attributes that convolutions and poolings share: numbers for each axis, and the padding around it."""

from typing import Any

from jaxlib.mlir import ir

from torch_neuronx_compile.compilers.emulator.rewrite.values import elements, integers


def numbers_of(operation: Any, name: str, rank: int) -> list[int]:
    """Return a number for each of ``rank`` axes: strides or dilations, which are 1 where they are not given."""
    return integers(operation.attributes[name]) if name in operation.attributes else [1] * rank


def padding_of(operation: Any, rank: int) -> tuple[list[int], list[int]]:
    """Return the padding before and behind each of ``rank`` axes."""
    if "padding" not in operation.attributes:
        return [0] * rank, [0] * rank
    flat = elements(ir.DenseIntElementsAttr(operation.attributes["padding"]))
    if len(flat) != 2 * rank:  # one number for all
        flat = flat[:1] * (2 * rank)
    return flat[::2], flat[1::2]
