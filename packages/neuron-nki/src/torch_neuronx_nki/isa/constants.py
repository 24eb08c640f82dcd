"""``nki.isa.constants``: the enumerations under the vendor's names."""

from torch_neuronx_nki.engines import DgeMode as dge_mode
from torch_neuronx_nki.engines import DmaEngine as dma_engine
from torch_neuronx_nki.engines import Engine as engine
from torch_neuronx_nki.engines import MatmulPerfMode as matmul_perf_mode
from torch_neuronx_nki.engines import NcVersion as nc_version
from torch_neuronx_nki.engines import OobMode as oob_mode
from torch_neuronx_nki.engines import ReduceCmd as reduce_cmd

__all__ = ["dge_mode", "dma_engine", "engine", "matmul_perf_mode", "nc_version", "oob_mode", "reduce_cmd"]
