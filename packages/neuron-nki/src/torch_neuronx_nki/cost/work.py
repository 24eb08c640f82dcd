"""What one instruction costs: how long it keeps its engine busy, and when its result is there."""

from dataclasses import dataclass

from torch_neuronx_nki.cost.figures import Figures
from torch_neuronx_nki.engines import Buffer, DgeMode, Engine
from torch_neuronx_nki.trace import Access, Instruction, Operand

_FAST = frozenset({"tensor_copy", "tensor_scalar", "memset"})
_NARROW = frozenset({"bfloat16", "float16"})
_NARROW_SCALAR = _NARROW | {"float8_e4m3", "float8_e4m3fn", "float8_e5m2"}


@dataclass(frozen=True, slots=True)
class Work:
    """The cost of one instruction. Seconds, bytes, operations."""

    busy: float
    """How long nothing else can use what it uses: its engine, or for DMA its part of all DMA engines."""
    latency: float
    """From start until the result is there."""
    hbm_seconds: float = 0.0
    hbm_read: int = 0
    hbm_written: int = 0
    flops: int = 0
    ideal: float = 0.0
    """Seconds of its operations at the peak of its type."""


def work_of(instruction: Instruction, figures: Figures, *, stationary_is_loaded: bool = False) -> Work:
    """Estimate one instruction. ``stationary_is_loaded``: a matmul finds its stationary tile in the array."""
    if instruction.dma is not None:
        return _transfer(instruction, figures)
    if instruction.engine is Engine.tensor:
        return _product(instruction, figures, stationary_is_loaded)
    elements = max((_elements(operand) for operand in instruction.operands), default=0)
    hz = {Engine.scalar: figures.scalar_hz, Engine.gpsimd: figures.gpsimd_hz}.get(instruction.engine, figures.vector_hz)
    if not instruction.operands:
        return Work(0.0, 0.0)
    cycles = max(elements * _cycles_per_element(instruction, figures), figures.least_cycles)
    if instruction.opcode == "topk":
        cycles = 4 * dict(instruction.parameters)["n"] + instruction.operands[0].elements_per_partition
    return Work(cycles / hz, (cycles + figures.fixed_cycles) / hz)


def _elements(operand: Operand) -> int:
    return operand.elements_per_partition if operand.buffer.on_chip else 0


def _cycles_per_element(instruction: Instruction, figures: Figures) -> float:
    opcode = instruction.opcode
    operands = [operand for operand in instruction.operands if operand.elements_per_partition > 1]
    dtypes = {operand.dtype for operand in operands}
    if instruction.engine is Engine.vector:
        if opcode == "reciprocal":
            return figures.reciprocal_cycles
        if opcode == "exponential":
            return 1 / figures.exponential_per_cycle
        inputs = sum(operand.access is Access.READ for operand in operands)
        if figures.vector_modes and dtypes and dtypes <= _NARROW:
            in_sbuf = all(operand.buffer is Buffer.sbuf for operand in operands)
            dense = all(operand.run_bytes >= operand.itemsize * operand.shape[-1] for operand in operands)
            if opcode in _FAST:
                return 0.25 if in_sbuf and dense else 0.5
            if opcode == "tensor_tensor" and all(
                operand.buffer is Buffer.sbuf for operand in operands if operand.access is Access.READ
            ):
                return 0.5
        return figures.two_inputs if inputs > 1 else 1.0
    if instruction.engine is Engine.scalar and figures.scalar_modes and dtypes <= _NARROW_SCALAR and opcode in _FAST:
        return 0.5
    return 1.0


def _product(instruction: Instruction, figures: Figures, loaded: bool) -> Work:
    matmul = instruction.matmul
    if matmul is None:  # nc_transpose: the data moves, the identity stays
        rows = max((operand.partitions for operand in instruction.operands), default=0)
        cycles = max(rows, figures.matmul_least_columns)
        return Work(cycles / figures.tensor_hz, (cycles + figures.fixed_cycles) / figures.tensor_hz)
    passes = figures.float32_passes if matmul.dtype == "float32" and not matmul.is_transpose else 1
    cycles = max(matmul.n, figures.matmul_least_columns) * passes
    if not loaded:
        cycles += max(matmul.m, figures.matmul_least_columns) * passes // figures.load_stationary_speedup
    flops = 0 if matmul.is_transpose else 2 * matmul.k * matmul.m * matmul.n
    return Work(
        cycles / figures.tensor_hz,
        (cycles + figures.fixed_cycles) / figures.tensor_hz,
        flops=flops,
        ideal=flops / figures.peak(matmul.dtype),
    )


def _transfer(instruction: Instruction, figures: Figures) -> Work:
    dma = instruction.dma
    assert dma is not None
    read = sum(
        operand.nbytes
        for operand in instruction.operands
        if not operand.buffer.on_chip and operand.access is not Access.WRITE
    )
    written = sum(
        operand.nbytes
        for operand in instruction.operands
        if not operand.buffer.on_chip and operand.access is not Access.READ
    )
    share = min(1.0, (dma.descriptor_bytes / figures.dma_full_descriptor) ** 0.5)
    if dma.transposes:
        share = figures.dma_transpose_from_hbm if read else figures.dma_transpose_on_chip
    elif dma.computes:
        share *= figures.dma_compute
    rate = figures.dma_engine_bytes_per_second * share
    moved = max(dma.nbytes, read)
    fixed = figures.dma_hardware_seconds if dma.mode is DgeMode.hwdge else figures.dma_fixed_seconds
    hbm = (read + written) / figures.hbm_bytes_per_second
    busy = moved / (rate * figures.dma_engines)
    alone = moved / (rate * min(figures.dma_engines, max(dma.descriptors, 1)))
    return Work(busy, fixed + max(alone, hbm), hbm_seconds=hbm, hbm_read=read, hbm_written=written)
