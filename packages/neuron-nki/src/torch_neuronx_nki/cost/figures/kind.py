"""What is known of a core's speed."""

from dataclasses import dataclass

ASSUMED = (
    "Figures are of AWS's public architecture and NKI performance pages, but for those that no page gives: GpSimd "
    "works through one element per cycle and partition, Scalar and GpSimd have the fixed cost of Vector, a DMA of "
    "descriptors of d bytes below 4 KiB reaches sqrt(d / 4096) of its rate, and other instructions cost one pass over "
    "their largest operand."
)
"""What is not from a public page."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one core. Seconds, bytes, hertz."""

    name: str
    tensor_hz: float
    vector_hz: float
    scalar_hz: float
    gpsimd_hz: float
    peak_flops: tuple[tuple[str, float], ...]
    """Floating-point operations per second of the tensor engine, by the type of the moving tile."""
    hbm_bytes_per_second: float
    """One core's share of the device."""
    dma_engines: int
    dma_engine_bytes_per_second: float
    dma_fixed_seconds: float
    """From issue to arrival of a transfer of no bytes, with descriptors made by software or ahead of time."""
    dma_hardware_seconds: float
    """The same with descriptors made by hardware."""
    dma_full_descriptor: int
    """Bytes of a descriptor from which on the rate is reached."""
    dma_transpose_from_hbm: float
    """Share of the rate that a transpose reaches."""
    dma_transpose_on_chip: float
    dma_compute: float
    """Share of the rate that a transfer which adds reaches."""
    matmul_least_columns: int
    """A pass takes at least as many cycles."""
    float32_passes: int
    load_stationary_speedup: int
    """How many rows of the stationary tile are loaded per cycle."""
    fixed_cycles: int
    """Cycles from issue to result beyond one per element."""
    least_cycles: int
    """Between the starts of two instructions of one engine."""
    two_inputs: float
    """Cycles per element of Vector with two tensors as inputs."""
    vector_modes: bool
    """Whether Vector is 4 or 2 times faster for 16-bit types."""
    scalar_modes: bool
    """Whether Scalar is 2 times faster for copies and scalar arithmetic of narrow types."""
    reciprocal_cycles: int
    """Of Vector, per element."""
    exponential_per_cycle: int
    """Elements of ``exponential`` per cycle and partition."""

    def peak(self, dtype: str) -> float:
        """Return operations per second for matmuls of ``dtype``."""
        for prefix, flops in self.peak_flops:
            if dtype.startswith(prefix):
                return flops
        return self.peak_flops[-1][1]
