"""Partitions, access patterns, tensors, operands, operators."""

import nki.isa as nisa
import nki.language as nl
import numpy as np
import torch
from wrong_kernels.corpus import ones, wrong


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.zeros(shape, dtype, buffer)


@wrong("OPER005", ones(8, 8))
def a_pattern_that_is_a_number(x):
    nisa.iota(tile(8, 8, dtype=nl.int32), pattern=8)  # wrong
    return x


@wrong("PART001", ones(8, 8))
def too_many_partitions(x):
    nl.ndarray((129, 8), nl.float32)  # wrong
    return x


@wrong("PART002", ones(8, 8))
def starts_within_a_quadrant(x):
    a = tile(128, 8)
    nisa.tensor_copy(a[16:32, :], a[0:16, :])  # wrong
    return x


@wrong("PART002", ones(8, 8))
def half_from_a_quarter(x):
    a = tile(128, 8)
    nisa.memset(a[32:96, :], 0.0)  # wrong
    return x


@wrong("PART003", ones(8, 8))
def partitions_differ(x):
    nisa.tensor_tensor(tile(64, 8), tile(64, 8), tile(32, 8), nl.add)  # wrong
    return x


@wrong("AP001", ones(8, 8))
def a_slice_too_long(x):
    nl.load(x[0:9, :])  # wrong
    return x


@wrong("AP001", ones(8, 8))
def a_pattern_too_long(x):
    x.ap([[8, 8], [1, 9]])  # wrong
    return x


@wrong("AP001", ones(8, 8))
def dynamic_slice_too_long(x):
    nl.load(x[nl.ds(4, 8), :])  # wrong
    return x


@wrong("AP001", ones(8, 8))
def too_many_indices(x):
    nl.load(x[0:1, 0:1, 0:1])  # wrong
    return x


@wrong("AP002", ones(8, 8))
def an_index_of_numbers(x):
    nl.load(x[0.5, :])  # wrong
    return x


@wrong("AP003", ones(8, 8))
def shifts_in_place(x):
    a = tile(8, 8)
    nisa.tensor_copy(a[:, 1:8], a[:, 0:7])  # wrong
    return x


@wrong("TENS001", ones(8, 8))
def no_free_dimension(x):
    nl.ndarray((8,), nl.float32)  # wrong
    return x


@wrong("TENS001", ones(8, 8))
def an_empty_tensor(x):
    nl.ndarray((8, 0), nl.float32)  # wrong
    return x


@wrong("TENS002", ones(8, 8))
def a_type_that_is_none(x):
    nl.ndarray((8, 8), "float64")  # wrong
    return x


@wrong("TENS003", ones(8, 8))
def an_array_as_operand(x):
    nisa.tensor_copy(tile(8, 8), np.ones((8, 8)))  # wrong
    return x


@wrong("TENS004", ones(8, 8))
def the_partition_moves(x):
    tile(8, 8).permute((1, 0))  # wrong
    return x


@wrong("TENS004", ones(8, 8))
def a_reshape_across_partitions(x):
    tile(8, 8).reshape((16, 4))  # wrong
    return x


@wrong("TENS005", ones(8, 8))
def bytes_that_do_not_divide(x):
    tile(8, 7, dtype=nl.bfloat16).view(nl.float32)  # wrong
    return x


@wrong("OPND001", ones(8, 8))
def a_scalar_of_text(x):
    a = tile(8, 8)
    nisa.tensor_scalar(a, a, nl.add, "1")  # wrong
    return x


@wrong("OPND002", ones(8, 8))
def an_engine_reads_hbm(x):
    nisa.tensor_copy(tile(8, 8), x)  # wrong
    return x


@wrong("OPND002", ones(8, 8))
def dma_reads_psum(x):
    nisa.dma_copy(x, tile(8, 8, buffer=nl.psum))  # wrong
    return x


@wrong("OPND002", ones(8, 8))
def a_product_into_sbuf(x):
    nisa.nc_matmul(tile(8, 8), tile(8, 8), tile(8, 8))  # wrong
    return x


@wrong("OPND003", ones(8, 8))
def elements_differ(x):
    nisa.tensor_tensor(tile(8, 8), tile(8, 8), tile(8, 4), nl.add)  # wrong
    return x


@wrong("OPND003", ones(8, 8))
def a_copy_of_other_size(x):
    nisa.dma_copy(tile(8, 4), x)  # wrong
    return x


@wrong("OPND004", ones(8, 8))
def a_product_of_other_shape(x):
    nisa.nc_matmul(tile(8, 16, buffer=nl.psum), tile(8, 8), tile(8, 8))  # wrong
    return x


@wrong("OPND004", ones(8, 8))
def a_bias_per_element(x):
    nisa.activation(tile(8, 8), nl.exp, tile(8, 8), bias=tile(8, 8))  # wrong
    return x


@wrong("OPND005", ones(8, 8))
def bits_of_floats(x):
    nisa.tensor_tensor(tile(8, 8), tile(8, 8), tile(8, 8), nl.bitwise_and)  # wrong
    return x


@wrong("OPND005", ones(8, 8))
def a_product_of_integers(x):
    nisa.nc_matmul(tile(8, 8, buffer=nl.psum), tile(8, 8, dtype=nl.int32), tile(8, 8, dtype=nl.int32))  # wrong
    return x


@wrong("OPND006", ones(8, 8))
def wide_and_narrow_meet(x):
    nisa.nc_matmul(tile(8, 8, buffer=nl.psum), tile(8, 8), tile(8, 8, dtype=nl.bfloat16))  # wrong
    return x


@wrong("OPND006", ones(8, 8))
def a_transpose_that_converts(x):
    nisa.nc_transpose(tile(8, 8, dtype=nl.bfloat16), tile(8, 8))  # wrong
    return x


@wrong("OPND007", ones(8, 8))
def moving_is_too_wide(x):
    nisa.nc_matmul(tile(128, 513, buffer=nl.psum), tile(128, 128), tile(128, 513))  # wrong
    return x


@wrong("OPND007", ones(8, 8))
def stationary_is_too_wide(x):
    nisa.nc_matmul(tile(128, 8, buffer=nl.psum), tile(128, 129), tile(128, 8))  # wrong
    return x


@wrong("OPND007", ones(8, 8))
def statistics_of_too_many(x):
    nisa.bn_stats(tile(8, 6), tile(8, 513))  # wrong
    return x


@wrong("OPND007", ones(8, 8))
def eight_of_seven(x):
    nisa.max8(tile(8, 8), tile(8, 7))  # wrong
    return x


@wrong("OPER001", ones(8, 8))
def an_activation_as_operator(x):
    nisa.tensor_tensor(tile(8, 8), tile(8, 8), tile(8, 8), nl.exp)  # wrong
    return x


@wrong("OPER002", ones(8, 8))
def bits_and_arithmetic(x):
    a = tile(8, 8, dtype=nl.int32)
    nisa.tensor_scalar(a, a, nl.bitwise_and, 1, op1=nl.add, operand1=1)  # wrong
    return x


@wrong("OPER003", ones(8, 8))
def reduces_partitions(x):
    nisa.tensor_reduce(tile(8, 1), nl.add, tile(8, 8), 0)  # wrong
    return x


@wrong("OPER004", ones(8, 8))
def a_mask_out_of_range(x):
    a = tile(32, 8)
    nisa.nc_stream_shuffle(a, a, [40] * 32)  # wrong
    return x


@wrong("ARG002", ones(8, 8, dtype=torch.float64))
def a_double(x):  # wrong
    return x


@wrong("ARG003", ones(8, 8))
def returns_a_tile(x):
    return nl.load(x)  # wrong
