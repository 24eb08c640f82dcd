"""Engines, generations, matrix products, DMA, registers, two cores, order."""

import nki.isa as nisa
import nki.language as nl
import torch
from wrong_kernels.corpus import ones, wrong

INDEX = torch.tensor([[3], [700]], dtype=torch.int32)


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.zeros(shape, dtype, buffer)


@wrong("ENG001", ones(8, 8))
def the_tensor_engine_adds(x):
    a = tile(8, 8)
    nisa.tensor_tensor(a, a, a, nl.add, engine=nisa.engine.tensor)  # wrong
    return x


@wrong("ENG001", ones(8, 8))
def gpsimd_reads_psum(x):
    nisa.tensor_copy(tile(8, 8), tile(8, 8, buffer=nl.psum), engine=nisa.engine.gpsimd)  # wrong
    return x


@wrong("ENG001", ones(8, 8))
def gpsimd_transposes(x):
    nisa.nc_transpose(tile(8, 8), tile(8, 8), engine=nisa.engine.gpsimd)  # wrong
    return x


@wrong("ENG002", ones(8, 8))
def an_instruction_of_trn3(x):
    nisa.exponential(tile(8, 8), tile(8, 8))  # wrong
    return x


@wrong("ENG002", ones(8, 8))
def a_priority_on_trn2(x):
    nisa.dma_copy(tile(8, 8), x, priority=1)  # wrong
    return x


@wrong("ENG002", ones(8, 8))
def a_type_of_trn3(x):
    a = tile(8, 8, dtype=nl.float8_e4m3fn)
    nisa.nc_matmul(tile(8, 8, buffer=nl.psum), a, a)  # wrong
    return x


@wrong("ENG003", ones(8, 8), target="trn3", language="0.3")
def a_name_of_a_later_version(x):
    a = tile(8, 8)
    nisa.tensor_tensor(a, a, a, nl.abs_max)  # wrong
    return x


@wrong("MM001", ones(8, 8))
def depths_differ(x):
    nisa.nc_matmul(tile(8, 8, buffer=nl.psum), tile(32, 8), tile(64, 8))  # wrong
    return x


@wrong("MM002", ones(8, 8))
def a_tile_without_a_position(x):
    nisa.nc_matmul(tile(8, 8, buffer=nl.psum), tile(32, 8), tile(32, 8), tile_size=(32, 32))  # wrong
    return x


@wrong("MM002", ones(8, 8))
def a_tile_too_small(x):
    a = tile(32, 8)
    nisa.nc_matmul(tile(8, 8, buffer=nl.psum), a, a, tile_position=(0, 0), tile_size=(16, 32))  # wrong
    return x


@wrong("MM002", ones(8, 8))
def a_position_between_tiles(x):
    a = tile(32, 8)
    nisa.nc_matmul(tile(8, 8, buffer=nl.psum), a, a, tile_position=(16, 0), tile_size=(32, 32))  # wrong
    return x


@wrong("DMA001", ones(8, 8))
def hardware_converts(x):
    nisa.dma_copy(tile(8, 8, dtype=nl.bfloat16), x, dge_mode=nisa.dge_mode.hwdge)  # wrong
    return x


@wrong("DMA001", ones(8, 8))
def hardware_on_the_wrong_engine(x):
    nisa.dma_copy(tile(8, 8), x, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.gpsimd)  # wrong
    return x


@wrong("DMA002", ones(64, 8), INDEX)
def an_index_outside(x, index):
    rows = nl.load(index)
    nisa.dma_copy(tile(2, 8), x.ap([[8, 2], [1, 8]], vector_offset=rows))  # wrong
    return x


@wrong("DMA003", ones(16, 8))
def moves_rows_down(x):
    nisa.dma_copy(x[1:16, :], x[0:15, :])  # wrong
    return x


@wrong("DMA003", ones(16, 8))
def moves_columns_by_dma(x):
    a = tile(16, 8)
    nisa.dma_copy(a[:, 0:6], a[:, 2:8])  # wrong
    return x


@wrong("REG001", ones(8, 8))
def a_register_of_floats(x):
    nisa.register_load(nisa.register_alloc(0), tile(2, 2))  # wrong
    return x


@wrong("CORE001", ones(8, 8), lnc=2)
def a_core_that_is_not_there(x):
    a, b = tile(8, 8), tile(8, 8)
    nisa.sendrecv(a, b, 2, 1, 0)  # wrong
    return x


@wrong("CORE001", ones(8, 8), lnc=2)
def a_barrier_of_one(x):
    nisa.core_barrier(x, (0,))  # wrong
    return x


@wrong("CORE002", ones(8, 8), lnc=2)
def cores_allocate_differently(x):
    nl.ndarray((8 + nl.program_id(0), 8), nl.float32, nl.shared_hbm)  # wrong
    return x


@wrong("CORE003", ones(8, 8), lnc=2)
def both_cores_write(x):
    nisa.dma_copy(x, tile(8, 8))  # wrong
    return x


@wrong("CORE003", ones(16, 8), lnc=2)
def reads_what_the_other_writes(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    core = nl.program_id(0)
    nisa.dma_copy(out[nl.ds(8 * core, 8), :], x[nl.ds(8 * core, 8), :])
    if core == 1:
        nl.load(out[0:8, :])  # wrong
    return out


@wrong("CORE003", ones(16, 8), lnc=2)
def a_barrier_too_early(x):
    core = nl.program_id(0)
    nisa.core_barrier(x, (0, 1))
    nisa.dma_copy(x[nl.ds(4 * core, 8), :], tile(8, 8))  # wrong
    return x


@wrong("ORD001", ones(8, 8))
def depends_on_what_comes_later(x):
    a = tile(8, 8)
    first = nisa.memset(a, 0.0)
    second = nisa.memset(a, 1.0)
    first.depends_on(second)  # wrong
    return x
