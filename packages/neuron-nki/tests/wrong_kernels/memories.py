"""Capacity, banks, addresses, initialisation."""

import nki.isa as nisa
import nki.language as nl
from wrong_kernels.corpus import ones, wrong

KIB = 1024


def loaded(x, shape=None, **place):
    tile = nl.ndarray(shape or x.shape, x.dtype, **place)
    nisa.memset(tile, 1)
    return tile


@wrong("SBUF001", ones(128, 32 * KIB))
def four_tiles_live_at_once(x):
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray(x.shape, x.dtype))  # wrong
        nisa.dma_copy(tiles[-1], x)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.tensor_tensor(tiles[0], tiles[0], tiles[1], nl.add)
    nisa.dma_copy(out, tiles[0])
    return out


@wrong("SBUF001", ones(1, 8), target="trn3")
def one_tile_too_large(x):
    tile = nl.ndarray((128, 65 * KIB), nl.float32)  # wrong
    nisa.memset(tile, 0)
    return x


@wrong("SBUF001", ones(1, 8))
def fits_only_trn3(x):
    tile = nl.ndarray((128, 58 * KIB), nl.float32)  # wrong
    nisa.memset(tile, 0)
    return x


@wrong("SBUF001", ones(32, 8))
def many_tiles_of_few_partitions(x):
    tiles = [nl.ndarray((32, 16 * KIB), nl.float32) for _ in range(15)]  # wrong
    for tile in tiles:
        nisa.memset(tile, 0)
    for tile in tiles:
        nisa.tensor_copy(tile, tiles[0])
    return x


@wrong("PSUM001", ones(128, 128), ones(128, 512))
def nine_banks(a, b):
    left, right = loaded(a), loaded(b)
    sums = []
    for _ in range(9):
        sums.append(nl.ndarray((128, 512), nl.float32, nl.psum))  # wrong
        nisa.nc_matmul(sums[-1], left, right)
    for one in sums:
        nisa.tensor_copy(right, one)
    return a


@wrong("PSUM001", ones(1, 8))
def a_tile_larger_than_psum(x):
    tile = nl.ndarray((128, 4097), nl.float32, nl.psum)  # wrong
    nisa.memset(tile, 0)
    return x


@wrong("PSUM001", ones(128, 1))
def banks_are_not_shared_by_small_tiles(x):
    tiles = [nl.ndarray((128, 1), nl.float32, nl.psum) for _ in range(9)]  # wrong
    for tile in tiles:
        nisa.memset(tile, 0)
    for tile in tiles:
        nisa.tensor_copy(tile, tiles[0])
    return x


@wrong("PSUM002", ones(128, 128), ones(128, 512))
def a_product_across_banks(a, b):
    sums = nl.ndarray((128, 1024), nl.float32, nl.psum)
    nisa.nc_matmul(sums[:, 256:768], loaded(a), loaded(b))  # wrong
    return a


@wrong("PSUM002", ones(128, 128), ones(128, 512))
def a_product_with_gaps_across_banks(a, b):
    sums = nl.ndarray((128, 1024), nl.float32, nl.psum)
    nisa.nc_matmul(sums[:, 0:1024:2], loaded(a), loaded(b))  # wrong
    return a


@wrong("PSUM003", ones(128, 128), ones(128, 512))
def adds_to_nothing(a, b):
    sums = nl.ndarray((128, 512), nl.float32, nl.psum)
    nisa.nc_matmul(sums, loaded(a), loaded(b), accumulate=True)  # wrong
    return a


@wrong("PSUM003", ones(128, 128), ones(128, 512))
def adds_to_a_memset(a, b):
    sums = nl.zeros((128, 512), nl.float32, nl.psum)
    nisa.nc_matmul(sums, loaded(a), loaded(b), accumulate=True)  # wrong
    return a


@wrong("PSUM003", ones(128, 128), ones(128, 256))
def adds_to_a_half(a, b):
    sums = nl.ndarray((128, 512), nl.float32, nl.psum)
    nisa.nc_matmul(sums[:, 0:256], loaded(a), loaded(b))
    nisa.nc_matmul(sums[:, 128:384], loaded(a), loaded(b), accumulate=True)  # wrong
    return a


@wrong("PSUM004", ones(128, 64))
def two_inputs_in_psum(x):
    a, b, out = (loaded(x, buffer=nl.psum) for _ in range(3))
    nisa.tensor_tensor(out, a, b, nl.add)  # wrong
    return x


@wrong("PSUM005", ones(128, 64))
def not_at_a_bank(x):
    tile = nl.ndarray((128, 64), nl.float32, nl.psum, address=(0, 1024))  # wrong
    nisa.memset(tile, 0)
    return x


@wrong("ADDR001", ones(128, 64))
def past_the_end_of_sbuf(x):
    nl.ndarray((128, 64), nl.float32, address=(0, 224 * KIB - 128))  # wrong
    return x


@wrong("ADDR001", ones(128, 64))
def past_the_last_partition(x):
    nl.ndarray((64, 64), nl.float32, address=(96, 0))  # wrong
    return x


@wrong("ADDR001", ones(128, 64))
def an_address_in_hbm(x):
    nl.ndarray((64, 64), nl.float32, nl.shared_hbm, address=(0, 0))  # wrong
    return x


@wrong("ADDR002", ones(128, 64))
def written_over(x):
    a = loaded(x, address=(0, 0))
    b = loaded(x, address=(0, 128))
    nisa.tensor_copy(b, a)  # wrong
    return x


@wrong("ADDR002", ones(64, 64))
def written_over_in_some_partitions(x):
    a = loaded(x, (128, 64), address=(0, 512))
    loaded(x, (64, 64), address=(64, 512))
    out = nl.ndarray((128, 64), nl.float32)
    nisa.tensor_copy(out[0:64, :], a[0:64, :])
    nisa.tensor_copy(out[64:128, :], a[64:128, :])  # wrong
    return x


@wrong("ADDR002", ones(128, 64))
def a_ring_of_two_that_turns_too_early(x):
    first = loaded(x, address=(0, 0))
    second = loaded(x, address=(0, 256))
    third = loaded(x, address=(0, 0))
    nisa.tensor_tensor(second, second, third, nl.add)
    nisa.tensor_tensor(second, second, first, nl.add)  # wrong
    return x


@wrong("INIT001", ones(128, 64))
def nothing_loaded(x):
    tile = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(x, tile)  # wrong
    return x


@wrong("INIT001", ones(128, 64))
def the_last_column_is_missing(x):
    tile = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(tile[:, 0:63], x[:, 0:63])
    nisa.activation(tile, nl.exp, tile)  # wrong
    return x


@wrong("INIT001", ones(100, 64))
def rows_of_the_last_tile_are_missing(x):
    tile = nl.ndarray((128, 64), x.dtype)
    nisa.dma_copy(tile[0:100, :], x)
    total = nl.ndarray((128, 1), nl.float32)
    nisa.tensor_reduce(total, nl.add, tile, 1)  # wrong
    return x


@wrong("INIT001", ones(128, 64))
def a_scalar_is_missing(x):
    tile, scale = loaded(x), nl.ndarray((128, 1), nl.float32)
    nisa.tensor_scalar(tile, tile, nl.multiply, scale)  # wrong
    return x


@wrong("INIT001", ones(128, 64))
def reads_its_own_result(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    tile = nl.load(out)  # wrong
    nisa.dma_copy(out, tile)
    return out


@wrong("INIT001", ones(128, 128), ones(128, 256))
def the_other_half_of_psum(a, b):
    sums = nl.ndarray((128, 512), nl.float32, nl.psum)
    nisa.nc_matmul(sums[:, 0:256], loaded(a), loaded(b))
    result = nl.ndarray((128, 512), nl.float32)
    nisa.tensor_copy(result, sums)  # wrong
    return a


@wrong("INIT001", ones(64, 8))
def an_index_is_missing(x):
    index, rows = nl.ndarray((32, 1), nl.int32), nl.zeros((32, 8), nl.float32)
    nisa.dma_copy(x.ap([[8, 32], [1, 8]], vector_offset=index), rows, oob_mode=nisa.oob_mode.skip)  # wrong
    return x


@wrong("INIT002", ones(128, 64))
def returns_what_it_forgot(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)  # wrong
    nl.load(x)
    return out
