"""Operators that become StableHLO operations here, not in torch-mlir. Runs in the worker."""

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.worker import attention, constants, documented, normalization, structured
from torch_neuronx_compile.worker.constants import splat


def uniform(call: Any, size: list[int]) -> Any:
    """Expand ``uniform(seed, size)``: float32 in [0, 1), multiples of 2**-24."""
    bits = _bits(call.operands[0], size)
    bits = stablehlo.shift_right_logical(bits, splat(bits.type, 8))
    floats = stablehlo.convert(call.results[0].type, bits)
    return stablehlo.multiply(floats, splat(floats.type, 2.0**-24))


def integers(call: Any, low: int, high: int, size: list[int]) -> Any:
    """Expand ``integers(seed, low, high, size)``: int64 in [low, high); a range up to 2**31."""
    bits = stablehlo.convert(call.results[0].type, _bits(call.operands[0], size))
    scaled = stablehlo.multiply(bits, splat(bits.type, high - low))
    scaled = stablehlo.shift_right_logical(scaled, splat(bits.type, 32))
    return stablehlo.add(scaled, splat(bits.type, low))


def _bits(seed: Any, size: list[int]) -> Any:
    """Build 32 random bits per element.

    The generator is StableHLO's default one: the only algorithm that neuronx-cc takes, Philox on the emulator.
    """
    u64, u32 = ir.IntegerType.get_unsigned(64), ir.IntegerType.get_unsigned(32)
    one = ir.RankedTensorType.get([1], u64)
    key = stablehlo.convert(one, stablehlo.reshape(ir.RankedTensorType.get([1], seed.type.element_type), seed))
    state = stablehlo.concatenate([key, splat(one, 0)], 0)
    algorithm = stablehlo.RngAlgorithmAttr.get("DEFAULT")
    _, bits = stablehlo.rng_bit_generator(state.type, ir.RankedTensorType.get(size, u32), algorithm, state)
    return bits


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "neuron_compile.uniform": uniform,
    "neuron_compile.integers": integers,
    **attention.EXPANSIONS,
    **constants.EXPANSIONS,
    **documented.EXPANSIONS,
    **normalization.EXPANSIONS,
    **structured.EXPANSIONS,
}
"""Builders by operator: they take the call and its constants by name and return the results."""
