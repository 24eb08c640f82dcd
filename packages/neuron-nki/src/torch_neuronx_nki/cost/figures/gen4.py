"""NeuronCore-v4: Trn3."""

from torch_neuronx_nki.cost.figures.kind import Figures

FIGURES = Figures(
    name="NeuronCore-v4",
    tensor_hz=2.4e9,  # architecture guide, clocks
    vector_hz=1.2e9,
    scalar_hz=1.2e9,
    gpsimd_hz=1.2e9,
    # architecture guide, per core; packed types are those of microscaled products
    peak_flops=(
        ("float8_e5m2_x4", 315e12), ("float8_e4m3fn_x4", 315e12), ("float4", 315e12), ("float32", 20e12),
        ("float8", 158e12), ("", 79e12),
    ),
    hbm_bytes_per_second=0.6e12,  # 4.9 TB/s for eight cores
    dma_engines=16,
    dma_engine_bytes_per_second=33e9,  # DMA guide: 528 GB/s for 16
    dma_fixed_seconds=1.3e-6,  # performance guide: about 1300 ns
    dma_hardware_seconds=0.6e-6,  # DGE page: about 600 ns
    dma_full_descriptor=4096,  # performance guide: 4 KiB saturate, 2 KiB are acceptable
    dma_transpose_from_hbm=0.9,  # DMA guide
    dma_transpose_on_chip=0.5,
    dma_compute=1.0,  # SBUF reads, adds and writes
    matmul_least_columns=64,  # performance guide: max(N, 64) cycles
    float32_passes=4,
    load_stationary_speedup=4,
    fixed_cycles=100,  # performance guide, given for v2
    least_cycles=64,
    two_inputs=1.0,
    vector_modes=True,  # as on Trn2
    scalar_modes=True,  # Trn3 guide: 2 times for copies and scalar arithmetic of bfloat16
    reciprocal_cycles=8,  # ISA page: max(64, 8 N) on Vector
    exponential_per_cycle=4,  # ISA page: 4 times the exp of Scalar
)  # fmt: skip
