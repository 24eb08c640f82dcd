"""Runs one collective on CPU tensors with Gloo and on device tensors, and compares the results bit by bit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Reduction:
    """A reduction: the operation asked for, and what Gloo is asked for to get the same on the CPU."""

    name: str
    factor: float | None = None

    def on_device(self) -> Any:
        if self.factor is not None:
            return dist._make_nccl_premul_sum(self.factor)
        return getattr(dist.ReduceOp, self.name)

    def on_cpu(self, dtype: torch.dtype) -> Any:
        if self.name == "SUM" and dtype is torch.bool:
            return dist.ReduceOp.MAX
        return dist.ReduceOp.SUM if self.name in ("AVG", "PREMUL_SUM") else getattr(dist.ReduceOp, self.name)


ARITHMETIC = tuple(Reduction(name) for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"))
BITWISE = tuple(Reduction(name) for name in ("BAND", "BOR", "BXOR"))
SCALED = Reduction("PREMUL_SUM", 0.5)


def reductions_of(dtype: torch.dtype) -> tuple[Reduction, ...]:
    """The reductions that have a meaning for values of ``dtype``."""
    if dtype is torch.bool:
        return (Reduction("SUM"), Reduction("PRODUCT"), Reduction("MIN"), Reduction("MAX"), *BITWISE)
    if dtype.is_complex:
        return (Reduction("SUM"), Reduction("AVG"), SCALED)
    return (*ARITHMETIC, SCALED) if dtype.is_floating_point else (*ARITHMETIC, *BITWISE)


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Values of ``dtype`` that differ between ranks and between seeds."""
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype in INTEGERS:
        return torch.randint(0, 100, shape, generator=generator).to(dtype)
    if dtype.is_complex:
        parts = torch.randn(*shape, 2, generator=generator)
        return torch.view_as_complex(parts).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _for_gloo(tensor: torch.Tensor) -> torch.Tensor:
    """Gloo on the CPU refuses a dimension for the ranks; on the device it is what is tested."""
    return tensor.view(-1) if tensor.device.type == "cpu" else tensor


# Reductions -----------------------------------------------------------------------------------------------------------


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype that a reduction is computed in."""
    if dtype.is_complex:
        return torch.complex64
    if dtype.is_floating_point:
        return torch.float32
    return torch.int32 if dtype is torch.int16 else dtype


Reduce = Callable[[Tensors, Any, Any], Tensors]
"""Reduces inputs with an operation in a group; returns the tensors that the collective wrote."""


def _all_reduce(tensors: Tensors, op: Any, group: Any) -> Tensors:
    dist.all_reduce(tensors[0], op, group=group)
    return tensors[:1]


def _reduce(tensors: Tensors, op: Any, group: Any) -> Tensors:
    dist.reduce(tensors[0], group_dst=group.size() - 1, op=op, group=group)
    return tensors[:1] if group.rank() == group.size() - 1 else []


def _reduce_scatter(tensors: Tensors, op: Any, group: Any) -> Tensors:
    output = torch.empty_like(tensors[0])
    dist.reduce_scatter(output, tensors[: group.size()], op, group=group)
    return [output]


def _reduce_scatter_single(tensors: Tensors, op: Any, group: Any) -> Tensors:
    source = torch.stack(tensors[: group.size()])
    output = torch.empty_like(source[0])
    dist.reduce_scatter_single(_for_gloo(output), _for_gloo(source), op, group=group)
    return [output]


def _all_reduce_coalesced(tensors: Tensors, op: Any, group: Any) -> Tensors:
    with dist.distributed_c10d._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, op, group=group)
    return tensors


def _reduce_scatter_coalesced(tensors: Tensors, op: Any, group: Any) -> Tensors:
    outputs = []
    with dist.distributed_c10d._coalescing_manager(group):
        for tensor in tensors[:2]:
            source = torch.stack([tensor] * group.size())
            outputs.append(torch.empty_like(tensor))
            dist.reduce_scatter_single(_for_gloo(outputs[-1]), _for_gloo(source), op, group=group)
    return outputs


REDUCES: dict[str, Reduce] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "all_reduce_coalesced": _all_reduce_coalesced,
    "reduce_scatter_single_coalesced": _reduce_scatter_coalesced,
}


ANOTHER_ORDER = frozenset({"reduce_scatter", "reduce_scatter_single_coalesced"})
"""Collectives that add in another order than Gloo's, which leaves the last bits of a float sum open."""


def compare_reduce(
    name: str, dtype: torch.dtype, reduction: Reduction, layout: str, shape: tuple[int, ...] = (3, 5)
) -> None:
    """Compare one reduction on the device with the same on the CPU, computed in the reduction's dtype."""
    group = group_of(layout)
    inputs = [values(shape, dtype, seed) for seed in range(4)]
    on_device = REDUCES[name]([tensor.to("neuron") for tensor in inputs], reduction.on_device(), group)

    wide = computed_in(dtype)
    on_cpu = [tensor.to(wide) for tensor in inputs]
    if reduction.factor is not None:
        on_cpu = [tensor * reduction.factor for tensor in on_cpu]
    expected = _reduce_on_cpu(name, on_cpu, reduction.on_cpu(dtype), group)
    if reduction.name == "AVG":
        size = group.size()
        integral = not (wide.is_floating_point or wide.is_complex)
        expected = [t.div(size, rounding_mode="trunc" if integral else None) for t in expected]
    check_equal(on_device, [tensor.to(dtype) for tensor in expected], exact=name not in ANOTHER_ORDER)


def _reduce_on_cpu(name: str, tensors: Tensors, op: Any, group: Any) -> Tensors:
    if not tensors[0].is_complex():
        return REDUCES[name](tensors, op, group)
    pairs = REDUCES[name]([torch.view_as_real(tensor).clone() for tensor in tensors], op, group)
    return [torch.view_as_complex(pair) for pair in pairs]


# Moves ----------------------------------------------------------------------------------------------------------------

Move = Callable[[Tensors, Any], Tensors]


def _broadcast(tensors: Tensors, group: Any) -> Tensors:
    dist.broadcast(tensors[0], group_src=group.size() - 1, group=group)
    return tensors[:1]


def _all_gather(tensors: Tensors, group: Any) -> Tensors:
    outputs = [torch.empty_like(tensors[0]) for _ in range(group.size())]
    dist.all_gather(outputs, tensors[0], group=group)
    return outputs


def _all_gather_single(tensors: Tensors, group: Any) -> Tensors:
    output = tensors[0].new_empty(group.size(), *tensors[0].shape)
    dist.all_gather_single(_for_gloo(output), _for_gloo(tensors[0]), group=group)
    return [output]


def _all_gather_coalesced(tensors: Tensors, group: Any) -> Tensors:
    outputs = [tensor.new_empty(group.size(), *tensor.shape) for tensor in tensors]
    with dist.distributed_c10d._coalescing_manager(group):
        for output, tensor in zip(outputs, tensors, strict=True):
            dist.all_gather_single(_for_gloo(output), _for_gloo(tensor), group=group)
    return outputs


def _all_to_all(tensors: Tensors, group: Any) -> Tensors:
    outputs = [torch.empty_like(tensor) for tensor in tensors[: group.size()]]
    dist.all_to_all(outputs, tensors[: group.size()], group=group)
    return outputs


def _all_to_all_single(tensors: Tensors, group: Any) -> Tensors:
    source = torch.stack(tensors[: group.size()])
    output = torch.empty_like(source)
    dist.all_to_all_single(output, source, group=group)
    return [output]


def _gather(tensors: Tensors, group: Any) -> Tensors:
    outputs = [torch.empty_like(tensors[0]) for _ in range(group.size())] if group.rank() == 0 else None
    dist.gather(tensors[0], outputs, group_dst=0, group=group)
    return outputs or []


def _scatter(tensors: Tensors, group: Any) -> Tensors:
    output = torch.empty_like(tensors[0])
    dist.scatter(output, tensors[: group.size()] if group.rank() == 0 else None, group_src=0, group=group)
    return [output]


def _send_recv(tensors: Tensors, group: Any) -> Tensors:
    rank, size = group.rank(), group.size()
    if size == 1:
        return []
    output = torch.empty_like(tensors[0])
    if rank % 2 == 0:
        dist.send(tensors[0], group_dst=(rank + 1) % size, group=group)
        dist.recv(output, group_src=(rank - 1) % size, group=group)
    else:
        dist.recv(output, group_src=(rank - 1) % size, group=group)
        dist.send(tensors[0], group_dst=(rank + 1) % size, group=group)
    return [output]


def _batched_send_recv(tensors: Tensors, group: Any) -> Tensors:
    rank, size = group.rank(), group.size()
    if size == 1:
        return []
    outputs = [torch.empty_like(tensor) for tensor in tensors[:2]]
    operations = []
    for tensor, output in zip(tensors[:2], outputs, strict=True):
        operations.append(dist.P2POp(dist.isend, tensor, group=group, group_peer=(rank + 1) % size))
        operations.append(dist.P2POp(dist.irecv, output, group=group, group_peer=(rank - 1) % size))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return outputs


MOVES: dict[str, Move] = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_single": _all_gather_single,
    "all_gather_single_coalesced": _all_gather_coalesced,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "gather": _gather,
    "scatter": _scatter,
    "send_recv": _send_recv,
    "batch_isend_irecv": _batched_send_recv,
}


def compare_move(name: str, dtype: torch.dtype, layout: str, shape: tuple[int, ...] = (3, 5)) -> None:
    """Compare one move of values on the device with the move of the same bytes on the CPU."""
    group = group_of(layout)
    inputs = [values(shape, dtype, seed) for seed in range(4)]
    on_device = MOVES[name]([tensor.to("neuron") for tensor in inputs], group)
    bytes_moved = MOVES[name]([tensor.view(torch.uint8).clone() for tensor in inputs], group)
    assert len(on_device) == len(bytes_moved)
    for device, expected in zip(on_device, bytes_moved, strict=True):
        assert device.device.type == "neuron"
        assert device.dtype is dtype
        assert torch.equal(device.cpu().view(torch.uint8), expected)


# Shared ---------------------------------------------------------------------------------------------------------------

LAYOUTS = ("world", "halves", "alone")
_groups: dict[str, Any] = {}


def group_of(layout: str) -> Any:
    """This rank's group: the world, its half of the ranks (interleaved), or itself."""
    if layout == "world":
        return dist.group.WORLD
    if layout not in _groups:
        size = dist.get_world_size()
        step = 2 if layout == "halves" else size
        for start in range(step):
            ranks = list(range(start, size, step))
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                _groups[layout] = group
    return _groups[layout]


def check_equal(on_device: Tensors, expected: Tensors, *, exact: bool = True) -> None:
    """Check that device tensors hold the expected values: exactly, or within the usual tolerance of their dtype."""
    assert len(on_device) == len(expected)
    for device, cpu in zip(on_device, expected, strict=True):
        assert device.device.type == "neuron"
        assert device.dtype is cpu.dtype
        assert device.shape == cpu.shape
        got = device.cpu()
        if got.dtype.itemsize == 1 and got.dtype.is_floating_point:
            got, cpu = got.float(), cpu.float()
        if not exact and got.dtype in (torch.float64, torch.complex128):
            got, cpu = got.to(computed_in(got.dtype)), cpu.to(computed_in(got.dtype))
        tolerance = {"rtol": 0, "atol": 0} if exact else {}
        torch.testing.assert_close(got, cpu, equal_nan=True, **tolerance)


# Every layout ---------------------------------------------------------------------------------------------------------


def compare_moves(name: str, dtype: torch.dtype) -> None:
    """Compare one move of values in every layout of groups."""
    for layout in LAYOUTS:
        with _told(name, layout):
            compare_move(name, dtype, layout)


def compare_reduces(name: str, dtype: torch.dtype) -> None:
    """Compare one collective with every reduction in every layout of groups."""
    for layout in LAYOUTS:
        for reduction in reductions_of(dtype):
            with _told(name, layout, reduction.name):
                compare_reduce(name, dtype, reduction, layout)


@contextmanager
def _told(*case: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(" ".join(case))
        raise
