"""NeuronCore-v3: Trn2."""

from torch_neuronx_nki.cost.figures.kind import Figures

FIGURES = Figures(
    name="NeuronCore-v3",
    tensor_hz=2.4e9,  # architecture guide, clocks
    vector_hz=0.96e9,
    scalar_hz=1.2e9,
    gpsimd_hz=1.2e9,
    peak_flops=(("float32", 20e12), ("float8", 158e12), ("", 79e12)),  # architecture guide, dense, per core
    hbm_bytes_per_second=0.36e12,  # 2.9 TB/s for eight cores
    dma_engines=16,
    dma_engine_bytes_per_second=23e9,  # DMA guide: 368 GB/s for 16
    dma_fixed_seconds=1.3e-6,  # performance guide: about 1300 ns
    dma_hardware_seconds=0.6e-6,  # DGE page: about 600 ns
    dma_full_descriptor=4096,  # performance guide: 4 KiB saturate, 2 KiB are acceptable
    dma_transpose_from_hbm=0.9,  # DMA guide
    dma_transpose_on_chip=0.5,
    dma_compute=0.5,
    matmul_least_columns=64,  # performance guide: max(N, 64) cycles
    float32_passes=4,
    load_stationary_speedup=4,
    fixed_cycles=100,  # performance guide, given for v2
    least_cycles=64,
    two_inputs=1.0,
    vector_modes=True,  # Trn2 guide: 4 times for copies and scalar arithmetic, 2 times for two tensors
    scalar_modes=False,
    reciprocal_cycles=8,  # ISA page: max(64, 8 N) on Vector
    exponential_per_cycle=1,  # the instruction does not exist
)
