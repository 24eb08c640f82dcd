"""What one core of each generation can hold and take: the limits that the checks and ``nl.tile_size`` quote.

The figures are those of AWS's public NKI and architecture pages. Bytes are per partition unless named otherwise.
"""

from dataclasses import dataclass

from torch_neuronx.targets import Target
from torch_neuronx_nki.engines import NcVersion

PARTITIONS = 128
"""Partitions of SBUF and PSUM: the largest dimension 0 of an on-chip tensor."""
PSUM_BANKS = 8
PSUM_BANK_BYTES = 2048
PSUM_BYTES = PSUM_BANKS * PSUM_BANK_BYTES
QUADRANT = 32
"""Partitions that one shuffle, or one tile of the tensor engine, works within."""


@dataclass(frozen=True, slots=True)
class CoreLimits:
    """The limits of one generation."""

    generation: NcVersion
    target: str
    """Name of the chip in ``torch_neuronx.targets``."""
    sbuf_bytes: int
    moving_fmax: int
    """Elements per partition of a matmul's moving tile, float32 result."""
    moving_fmax_bf16: int
    """The same where the result is bfloat16 (0: there is no such result)."""
    matmul_tile_min: int
    """Smallest row or column tile of the tensor engine."""
    tensor_hz: float
    vector_hz: float
    scalar_hz: float
    gpsimd_hz: float

    stationary_fmax: int = 128
    bn_stats_fmax: int = 512
    search_min: int = 8
    search_max: int = 16384


GEN2 = CoreLimits(NcVersion.gen2, "trn1", 192 * 1024, 512, 0, 64, 2.8e9, 1.12e9, 1.4e9, 1.4e9)
GEN3 = CoreLimits(NcVersion.gen3, "trn2", 224 * 1024, 512, 0, 32, 2.4e9, 0.96e9, 1.2e9, 1.2e9)
GEN4 = CoreLimits(NcVersion.gen4, "trn3", 256 * 1024, 4096, 8192, 32, 2.4e9, 1.2e9, 1.2e9, 1.2e9)

LIMITS = {limits.target: limits for limits in (GEN2, GEN3, GEN4)}


def limits_of(target: Target) -> CoreLimits:
    """Return the core limits of ``target``; an unlisted chip has those of the newest one it can hold."""
    known = LIMITS.get(target.name)
    if known is not None:
        return known
    fitting = [limits for limits in (GEN3, GEN4) if limits.sbuf_bytes * PARTITIONS <= target.sbuf]
    return fitting[-1] if fitting else GEN3
