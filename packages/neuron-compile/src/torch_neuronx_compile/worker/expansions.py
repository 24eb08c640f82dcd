"""Operators of this package that become StableHLO operations, not custom calls. Runs in the worker."""

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.worker import documented, structured


def uniform(call: Any, size: list[int]) -> Any:
    """Expand ``uniform(seed, size)``: float32 in [0, 1), multiples of 2**-24."""
    bits = _bits(call.operands[0], size)
    bits = stablehlo.shift_right_logical(bits, _splat(bits.type, 8))
    floats = stablehlo.convert(call.results[0].type, bits)
    scale = ir.DenseElementsAttr.get_splat(floats.type, ir.FloatAttr.get(ir.F32Type.get(), 2.0**-24))
    return stablehlo.multiply(floats, stablehlo.constant(scale))


def integers(call: Any, low: int, high: int, size: list[int]) -> Any:
    """Expand ``integers(seed, low, high, size)``: int64 in [low, high); a range up to 2**31."""
    bits = stablehlo.convert(call.results[0].type, _bits(call.operands[0], size))
    scaled = stablehlo.multiply(bits, _splat(bits.type, high - low))
    scaled = stablehlo.shift_right_logical(scaled, _splat(bits.type, 32))
    return stablehlo.add(scaled, _splat(bits.type, low))


def _bits(seed: Any, size: list[int]) -> Any:
    """Build 32 random bits per element.

    The generator is StableHLO's default one: the only algorithm that neuronx-cc takes, Philox on the emulator.
    """
    u64, u32 = ir.IntegerType.get_unsigned(64), ir.IntegerType.get_unsigned(32)
    one = ir.RankedTensorType.get([1], u64)
    key = stablehlo.convert(one, stablehlo.reshape(ir.RankedTensorType.get([1], seed.type.element_type), seed))
    state = stablehlo.concatenate([key, _splat(one, 0)], 0)
    algorithm = stablehlo.RngAlgorithmAttr.get("DEFAULT")
    _, bits = stablehlo.rng_bit_generator(state.type, ir.RankedTensorType.get(size, u32), algorithm, state)
    return bits


def _splat(tensor_type: Any, value: int) -> Any:
    element = ir.IntegerAttr.get(tensor_type.element_type, value)
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(tensor_type, element))


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "neuron_compile.uniform": uniform,
    "neuron_compile.integers": integers,
    **documented.EXPANSIONS,
    **structured.EXPANSIONS,
}
"""Builders by operator: they take the call and its constants by name and return the results."""
