"""``nki.isa``: the instructions. The first argument is where the result goes."""

from torch_neuronx_nki.errors import NkiValidationError
from torch_neuronx_nki.isa.activations import (
    activate2,
    activation,
    activation_reduce,
    exponential,
    range_select,
    select_reduce,
    tensor_scalar_cumulative,
    tensor_scalar_reduce,
)
from torch_neuronx_nki.isa.composed import composed
from torch_neuronx_nki.isa.constants import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from torch_neuronx_nki.isa.cores import core_barrier, sendrecv
from torch_neuronx_nki.isa.dma import dma_compute, dma_copy, dma_transpose
from torch_neuronx_nki.isa.elementwise import (
    memset,
    reciprocal,
    scalar_tensor_tensor,
    tensor_copy,
    tensor_copy_predicated,
    tensor_scalar,
    tensor_tensor,
)
from torch_neuronx_nki.isa.matmul import nc_matmul, nc_transpose
from torch_neuronx_nki.isa.microscaling import nc_matmul_mx, quantize_mx
from torch_neuronx_nki.isa.patterns import affine_select, iota, local_gather, nc_n_gather, nc_stream_shuffle
from torch_neuronx_nki.isa.random import (
    dropout,
    rand2,
    rand_get_state,
    rand_set_state,
    random_uniform,
    rng,
    seed,
    set_rng_seed,
)
from torch_neuronx_nki.isa.reductions import (
    bn_aggr,
    bn_stats,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_tensor_scan,
)
from torch_neuronx_nki.isa.scalars import (
    get_nc_sub_version,
    get_nc_version,
    register_alloc,
    register_load,
    register_move,
    register_store,
)
from torch_neuronx_nki.isa.search import (
    max8,
    nc_find_index8,
    nc_match_replace8,
    nonzero_with_count,
    sequence_bounds,
    topk,
)
from torch_neuronx_nki.issue import NkiInstruction

unknown_engine = engine.unknown
tensor_engine = engine.tensor
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
dma_queue_engine = engine.dma
vector_engine = engine.vector
sync_engine = engine.sync

__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "composed",
    "core_barrier",
    "dge_mode",
    "dma_compute",
    "dma_copy",
    "dma_engine",
    "dma_queue_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "exponential",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "matmul_perf_mode",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "nonzero_with_count",
    "oob_mode",
    "quantize_mx",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "random_uniform",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "rng",
    "scalar_engine",
    "scalar_tensor_tensor",
    "seed",
    "select_reduce",
    "sendrecv",
    "sequence_bounds",
    "set_rng_seed",
    "sync_engine",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "topk",
    "unknown_engine",
    "vector_engine",
]
