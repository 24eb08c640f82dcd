"""Attention without the matrix of all weights: forward and backward kernels, and the operators made of them.

The scores of one tile of 128 queries are made for up to 2048 keys at a time. The forward kernel keeps the largest score
and the sum of exponentials so far (Milakov and Gimelshein, 2018; Dao et al., 2022); the backward kernel makes the
weights again from the logarithm of that sum.
"""

from typing import Any

import torch

from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit
from torch_neuronx_nki.operators import nki_op
from torch_neuronx_nki.run import equivalent

TILE = 128
"""Queries in one tile, and keys in one pass of the tensor engine's stationary side."""
BANK = 512
"""float32 numbers of one partition in one bank of PSUM."""
KEYS = 4 * BANK
"""Keys whose scores are in PSUM together."""
_MASKED = -3.0e38


def _transposed(dst: Any, rows: Any, count: int, dtype: Any) -> None:
    """Write ``count`` tiles of ``rows`` (128, tiles, columns) to ``dst`` (columns, tiles, 128), four at a time."""
    columns = rows.shape[2]
    for first in range(0, count, 4):
        size = min(4, count - first)
        turned = nl.ndarray((columns, size, TILE), dtype=dtype, buffer=nl.psum)
        for i in range(size):
            nisa.nc_transpose(dst=turned[:, i, :], data=rows[:, first + i, :])
        nisa.tensor_copy(dst=dst[:, nl.ds(first, size), :], src=turned)


def _chunks(depth: int) -> list[tuple[int, int]]:
    """Split the elements of a head into what one pass contracts: pairs of start and size."""
    return [(start, min(TILE, depth - start)) for start in range(0, depth, TILE)]


@jit
def attention_forward(query: Any, key: Any, value: Any, scale: float, causal: bool) -> Any:
    """Return attention and the logarithm of each row's sum of exponentials, (heads, queries, 1) in float32.

    ``query`` is (heads, queries, depth), ``key`` and ``value`` (kv heads, keys, depth); ``heads / kv heads`` heads in a
    row share keys. Queries and keys are multiples of 128, ``scale`` is positive. ``causal``: query i sees keys 0 to i.
    """
    heads, queries, depth = query.shape
    kv_heads, keys, width = value.shape
    dtype = query.dtype
    tiles = keys // TILE
    out = nl.ndarray((heads, queries, width), dtype=dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((heads, queries, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    if causal:
        mask = nl.ndarray((TILE, TILE), dtype=nl.float32)
        nisa.memset(mask, 0.0)
        nisa.affine_select(
            dst=mask,
            pattern=[[-1, TILE]],
            channel_multiplier=1,
            on_true_tile=mask,
            on_false_value=_MASKED,
            cmp_op=nl.greater_equal,
        )
    for kv_head in range(kv_heads):
        rows = nl.ndarray((TILE, tiles, depth), dtype=dtype)
        values = nl.ndarray((TILE, tiles, width), dtype=dtype)
        nisa.dma_copy(rows, key[kv_head].reshape_dim(0, (tiles, TILE)).permute((1, 0, 2)))
        nisa.dma_copy(values, value[kv_head].reshape_dim(0, (tiles, TILE)).permute((1, 0, 2)))
        turned = []
        for start, size in _chunks(depth):
            part = nl.ndarray((size, tiles, TILE), dtype=dtype)
            _transposed(part, rows[:, :, nl.ds(start, size)], tiles, dtype)
            turned.append(part.reshape((size, keys)))
        group = heads // kv_heads
        for head in range(kv_head * group, (kv_head + 1) * group):
            for first in range(0, queries, TILE):
                seen = min(keys, first + TILE) if causal else keys
                tile = nl.ndarray((TILE, 1, depth), dtype=dtype)
                nisa.dma_copy(tile[:, 0, :], query[head, nl.ds(first, TILE), :])
                stationary = []
                for start, size in _chunks(depth):
                    part = nl.ndarray((size, 1, TILE), dtype=dtype)
                    _transposed(part, tile[:, :, nl.ds(start, size)], 1, dtype)
                    stationary.append(part[:, 0, :])
                top: Any = None
                total: Any = None
                result: Any = None
                for block in range(0, seen, KEYS):
                    count = min(KEYS, seen - block)
                    scores = nl.ndarray((TILE, count), dtype=nl.float32, buffer=nl.psum)
                    for start in range(0, count, BANK):
                        piece = nl.ds(start, min(BANK, count - start))
                        there = nl.ds(block + start, min(BANK, count - start))
                        for queries_part, keys_part in zip(stationary, turned, strict=True):
                            nisa.nc_matmul(scores[:, piece], queries_part, keys_part[:, there])
                    if causal and block <= first < block + count:
                        diagonal = scores[:, nl.ds(first - block, TILE)]
                        nisa.tensor_tensor(diagonal, diagonal, mask, op=nl.add)
                    largest = nl.ndarray((TILE, 1), dtype=nl.float32)
                    nisa.tensor_reduce(largest, nl.maximum, scores, axis=1)
                    if top is not None:
                        nisa.tensor_tensor(largest, largest, top, op=nl.maximum)
                    shift = nl.ndarray((TILE, 1), dtype=nl.float32)
                    nisa.tensor_scalar(shift, largest, nl.multiply, -scale)
                    weights = nl.ndarray((TILE, count), dtype=dtype)
                    added = nl.ndarray((TILE, 1), dtype=nl.float32)
                    nisa.activation_reduce(weights, nl.exp, scores, nl.add, added, bias=shift, scale=scale)
                    parts = count // TILE
                    across = nl.ndarray((TILE, parts, TILE), dtype=dtype)
                    _transposed(across, weights.reshape((TILE, parts, TILE)), parts, dtype)
                    product = nl.ndarray((TILE, width), dtype=nl.float32, buffer=nl.psum)
                    for i in range(parts):
                        nisa.nc_matmul(product, across[:, i, :], values[:, block // TILE + i, :])
                    if top is None:
                        result, total = product, added
                    else:
                        shrink = nl.ndarray((TILE, 1), dtype=nl.float32)
                        nisa.activation(shrink, nl.exp, top, bias=shift, scale=scale)
                        nisa.scalar_tensor_tensor(added, total, nl.multiply, shrink, nl.add, added)
                        grown = nl.ndarray((TILE, width), dtype=nl.float32)
                        if result.buffer is nl.psum:
                            nisa.tensor_copy(grown, result)
                            result = grown
                            grown = nl.ndarray((TILE, width), dtype=nl.float32)
                        nisa.scalar_tensor_tensor(grown, result, nl.multiply, shrink, nl.add, product)
                        result, total = grown, added
                    top = largest
                inverse = nl.ndarray((TILE, 1), dtype=nl.float32)
                nisa.reciprocal(inverse, total)
                stored = nl.ndarray((TILE, width), dtype=dtype)
                nisa.tensor_scalar(stored, result, nl.multiply, inverse)
                nisa.dma_copy(out[head, nl.ds(first, TILE), :], stored)
                logarithm = nl.ndarray((TILE, 1), dtype=nl.float32)
                nisa.activation(logarithm, nl.log, total)
                nisa.scalar_tensor_tensor(logarithm, top, nl.multiply, scale, nl.add, logarithm)
                nisa.dma_copy(sums[head, nl.ds(first, TILE), :], logarithm)
    return out, sums


@jit
def attention_backward(
    grad: Any, query: Any, key: Any, value: Any, out: Any, sums: Any, scale: float, causal: bool
) -> Any:
    """Return the gradients of query, key and value; arguments and results of the forward kernel come back as they were.

    ``grad`` is that of ``out``.
    """
    heads, queries, depth = query.shape
    kv_heads, keys, width = value.shape
    dtype = query.dtype
    group = heads // kv_heads
    d_query = nl.ndarray(query.shape, dtype=dtype, buffer=nl.shared_hbm)
    d_key = nl.ndarray(key.shape, dtype=dtype, buffer=nl.shared_hbm)
    d_value = nl.ndarray(value.shape, dtype=dtype, buffer=nl.shared_hbm)
    so_far = d_query if dtype == nl.float32 else nl.ndarray(query.shape, dtype=nl.float32, buffer=nl.private_hbm)
    products = nl.ndarray((heads, queries, 1), dtype=nl.float32, buffer=nl.private_hbm)
    for head in range(heads):
        for first in range(0, queries, TILE):
            here = nl.ds(first, TILE)
            left, right = (nl.ndarray((TILE, width), dtype=dtype) for _ in range(2))
            nisa.dma_copy(left, grad[head, here, :])
            nisa.dma_copy(right, out[head, here, :])
            both = nl.ndarray((TILE, width), dtype=nl.float32)
            nisa.tensor_tensor(both, left, right, op=nl.multiply)
            product = nl.ndarray((TILE, 1), dtype=nl.float32)
            nisa.tensor_reduce(product, nl.add, both, axis=1)
            nisa.dma_copy(products[head, here, :], product)
    for kv_head in range(kv_heads):
        for block in range(0, keys, BANK):
            count = min(BANK, keys - block)
            parts = count // TILE
            there = nl.ds(block, count)
            key_rows = nl.ndarray((TILE, parts, depth), dtype=dtype)
            value_rows = nl.ndarray((TILE, parts, width), dtype=dtype)
            nisa.dma_copy(key_rows, key[kv_head, there, :].reshape_dim(0, (parts, TILE)).permute((1, 0, 2)))
            nisa.dma_copy(value_rows, value[kv_head, there, :].reshape_dim(0, (parts, TILE)).permute((1, 0, 2)))
            keys_turned = _turn(key_rows, depth, parts, dtype)
            values_turned = _turn(value_rows, width, parts, dtype)
            key_sums = nl.ndarray((TILE, parts, depth), dtype=nl.float32)
            value_sums = nl.ndarray((TILE, parts, width), dtype=nl.float32)
            nisa.memset(key_sums, 0.0)
            nisa.memset(value_sums, 0.0)
            for head in range(kv_head * group, (kv_head + 1) * group):
                for first in range(block // TILE * TILE if causal else 0, queries, TILE):
                    here = nl.ds(first, TILE)
                    query_rows = nl.ndarray((TILE, 1, depth), dtype=dtype)
                    grad_rows = nl.ndarray((TILE, 1, width), dtype=dtype)
                    shift, product = (nl.ndarray((TILE, 1), dtype=nl.float32) for _ in range(2))
                    nisa.dma_copy(query_rows[:, 0, :], query[head, here, :])
                    nisa.dma_copy(grad_rows[:, 0, :], grad[head, here, :])
                    nisa.dma_copy(shift, sums[head, here, :])
                    nisa.dma_copy(product, products[head, here, :])
                    nisa.tensor_scalar(shift, shift, nl.multiply, -1.0)
                    scores, d_weights = (nl.ndarray((TILE, count), dtype=nl.float32, buffer=nl.psum) for _ in range(2))
                    for one, other in zip(_turn(query_rows, depth, 1, dtype), keys_turned, strict=True):
                        nisa.nc_matmul(scores, one, other)
                    for one, other in zip(_turn(grad_rows, width, 1, dtype), values_turned, strict=True):
                        nisa.nc_matmul(d_weights, one, other)
                    weights, d_scores = (nl.ndarray((TILE, count), dtype=dtype) for _ in range(2))
                    nisa.activation(weights, nl.exp, scores, bias=shift, scale=scale)
                    if causal and first < block + count:
                        nisa.affine_select(
                            dst=weights,
                            pattern=[[-1, count]],
                            channel_multiplier=1,
                            offset=first - block,
                            on_true_tile=weights,
                            on_false_value=0.0,
                            cmp_op=nl.greater_equal,
                        )
                    nisa.scalar_tensor_tensor(d_scores, d_weights, nl.subtract, product, nl.multiply, weights)
                    for i in range(parts):
                        part = nl.ds(i * TILE, TILE)
                        for to, stationary, moving in (
                            (value_sums, weights, grad_rows),
                            (key_sums, d_scores, query_rows),
                        ):
                            added = nl.ndarray((TILE, moving.shape[2]), dtype=nl.float32, buffer=nl.psum)
                            nisa.nc_matmul(added, stationary[:, part], moving[:, 0, :])
                            nisa.tensor_tensor(to[:, i, :], to[:, i, :], added, op=nl.add)
                    across = nl.ndarray((TILE, parts, TILE), dtype=dtype)
                    _transposed(across, d_scores.reshape((TILE, parts, TILE)), parts, dtype)
                    d_rows = nl.ndarray((TILE, depth), dtype=nl.float32, buffer=nl.psum)
                    for i in range(parts):
                        nisa.nc_matmul(d_rows, across[:, i, :], key_rows[:, i, :])
                    grown = nl.ndarray((TILE, depth), dtype=nl.float32)
                    if block:
                        nisa.dma_copy(grown, so_far[head, here, :])
                        nisa.scalar_tensor_tensor(grown, d_rows, nl.multiply, scale, nl.add, grown)
                    else:
                        nisa.tensor_scalar(grown, d_rows, nl.multiply, scale)
                    nisa.dma_copy(so_far[head, here, :], grown)
            nisa.tensor_scalar(key_sums, key_sums, nl.multiply, scale)
            for to, found in ((d_key, key_sums), (d_value, value_sums)):
                stored = nl.ndarray(found.shape, dtype=dtype)
                nisa.tensor_copy(stored, found)
                nisa.dma_copy(to[kv_head, there, :].reshape_dim(0, (parts, TILE)).permute((1, 0, 2)), stored)
    if so_far is not d_query:
        for head in range(heads):
            for first in range(0, queries, TILE):
                here = nl.ds(first, TILE)
                wide, stored = nl.ndarray((TILE, depth), dtype=nl.float32), nl.ndarray((TILE, depth), dtype=dtype)
                nisa.dma_copy(wide, so_far[head, here, :])
                nisa.tensor_copy(stored, wide)
                nisa.dma_copy(d_query[head, here, :], stored)
    return d_query, d_key, d_value


def _turn(rows: Any, depth: int, tiles: int, dtype: Any) -> list[Any]:
    """Return ``rows`` (128, tiles, depth) as chunks (depth of the chunk, 128 * tiles)."""
    found = []
    for start, size in _chunks(depth):
        part = nl.ndarray((size, tiles, TILE), dtype=dtype)
        _transposed(part, rows[:, :, nl.ds(start, size)], tiles, dtype)
        found.append(part.reshape((size, tiles * TILE)))
    return found


# The same in torch ----------------------------------------------------------------------------------------------------


def _weights(query: torch.Tensor, key: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    scores = query.float() @ key.float().mT * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores


@equivalent(attention_forward)
def _forward_in_torch(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    group = query.shape[0] // key.shape[0]
    key, value = (tensor.repeat_interleave(group, 0) for tensor in (key, value))
    out = torch.empty(*query.shape[:2], value.shape[2], dtype=query.dtype, device=query.device)
    sums = torch.empty(*query.shape[:2], 1, device=query.device)
    for head in range(query.shape[0]):  # all heads at once would need all their scores
        scores = _weights(query[head], key[head], scale, causal)
        sums[head] = torch.logsumexp(scores, -1, keepdim=True)
        out[head] = (torch.exp(scores - sums[head]).to(query.dtype) @ value[head]).to(query.dtype)
    return out, sums


@equivalent(attention_backward)
def _backward_in_torch(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    group = query.shape[0] // key.shape[0]
    d_query = torch.empty_like(query)
    d_key, d_value = (torch.zeros(tensor.shape, device=tensor.device) for tensor in (key, value))
    for head in range(query.shape[0]):
        shared = head // group
        weights = torch.exp(_weights(query[head], key[shared], scale, causal) - sums[head])
        upstream = grad[head].float()
        d_weights = upstream @ value[shared].float().mT
        product = (upstream * out[head].float()).sum(-1, keepdim=True)
        d_scores = (d_weights - product) * weights * scale
        d_query[head] = (d_scores @ key[shared].float()).to(query.dtype)
        d_key[shared] += d_scores.mT @ query[head].float()
        d_value[shared] += weights.mT @ upstream
    return d_query, d_key.to(key.dtype), d_value.to(value.dtype)


# Operators ------------------------------------------------------------------------------------------------------------


@nki_op("torch_neuronx_nki::attention")
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch the forward kernel."""
    out, sums = attention_forward(query, key, value, scale, causal)
    return out, sums


@nki_op("torch_neuronx_nki::attention_backward")
def attention_gradient(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Launch the backward kernel."""
    d_query, d_key, d_value = attention_backward(grad, query, key, value, out, sums, scale, causal)
    return d_query, d_key, d_value


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    query, key, value, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(query, key, value, *output)


def _gradient(ctx: Any, grad: torch.Tensor, grad_of_sums: torch.Tensor | None) -> tuple[Any, ...]:
    return (*attention_gradient(grad.contiguous(), *ctx.saved_tensors, ctx.scale, ctx.causal), None, None)


attention.register_autograd(_gradient, setup_context=_keep)


# The offer ------------------------------------------------------------------------------------------------------------

QUERIES = 2048
"""The kernel serves query lengths that are multiples of it."""
DEPTH = 256
"""The largest head."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_KEY_BYTES = 128 * 1024
"""What a partition holds of the keys, as they are and turned, and of the values of one head."""


def serves(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> bool:
    """Say whether the kernels can serve a call of ``scaled_dot_product_attention``.

    Query length a multiple of 2048, key length of 128 and no more than fits the chip's memory (21760 keys for heads of
    128 elements in bfloat16, 16384 for 64 in float32); no mask and no dropout; heads of up to 256 elements, equally
    many for keys and values, in float32, bfloat16 or float16; grouped heads where ``enable_gqa`` allows them.
    """
    if attn_mask is not None or dropout_p or (scale is not None and scale <= 0):
        return False
    if not query.dim() == key.dim() == value.dim() or query.dim() < 2:
        return False
    *batch, queries, depth = query.shape
    *kv_batch, keys, _ = key.shape
    if queries == 0 or queries % QUERIES or keys == 0 or keys % TILE:
        return False
    if query.dtype not in _DTYPES or key.dtype != query.dtype or value.dtype != query.dtype:
        return False
    if key.shape != value.shape or key.shape[-1] != depth or not 0 < depth <= DEPTH:
        return False
    if keys * query.dtype.itemsize * (len(_chunks(depth)) + 2 * depth / TILE) > _KEY_BYTES:
        return False
    if not all(batch):
        return False
    if batch == kv_batch:
        return True
    grouped = enable_gqa and len(batch) >= 1 and batch[:-1] == kv_batch[:-1]
    return grouped and kv_batch[-1] > 0 and batch[-1] % kv_batch[-1] == 0


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute what the operator of this name does, for calls that :func:`serves` accepts."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    flat = [tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (query, key, value)]
    out, _ = attention(*flat, float(factor), bool(is_causal))
    result: torch.Tensor = out.reshape(*query.shape[:-1], value.shape[-1])
    return result
