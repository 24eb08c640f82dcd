"""NeuronCore-v2: Trn1 and Inf2."""

from torch_neuronx_nki.cost.figures.kind import Figures

FIGURES = Figures(
    name="NeuronCore-v2",
    tensor_hz=2.8e9,  # architecture guide, clocks
    vector_hz=1.12e9,
    scalar_hz=1.4e9,
    gpsimd_hz=1.4e9,
    peak_flops=(("float32", 23e12), ("", 92e12)),  # architecture guide, per core
    hbm_bytes_per_second=0.41e12,  # 0.82 TB/s for two cores
    dma_engines=16,
    dma_engine_bytes_per_second=17e9,  # DMA guide
    dma_fixed_seconds=1.3e-6,  # performance guide: about 1300 ns
    dma_hardware_seconds=1.3e-6,  # there is no hardware that makes descriptors
    dma_full_descriptor=4096,  # performance guide: 4 KiB saturate, 2 KiB are acceptable
    dma_transpose_from_hbm=0.9,  # DMA guide
    dma_transpose_on_chip=0.5,
    dma_compute=0.5,
    matmul_least_columns=64,  # performance guide: max(N, 64) cycles
    float32_passes=4,
    load_stationary_speedup=4,
    fixed_cycles=100,  # performance guide: static overhead of Vector
    least_cycles=64,
    two_inputs=2.0,
    vector_modes=False,
    scalar_modes=False,
    reciprocal_cycles=8,  # ISA page: max(64, 8 N) on Vector
    exponential_per_cycle=1,  # the instruction does not exist
)
