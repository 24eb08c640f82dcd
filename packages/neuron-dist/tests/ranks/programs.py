"""Programs that the tests run on every rank of a world. They check on the spot and return what the test compares."""

import copy
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ranks.compare import check_equal, computed_in, values

NEURON = torch.device("neuron", 0)


def neuron(*numbers: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A device tensor of these numbers."""
    return torch.tensor(numbers, dtype=dtype).to(NEURON)


@contextmanager
def raises(kind: type[BaseException], *fragments: str) -> Iterator[None]:
    """Check that the block raises ``kind`` with a message that has every fragment."""
    with pytest.raises(kind) as caught:
        yield
    missing = [fragment for fragment in fragments if fragment not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


# Shapes and strides ---------------------------------------------------------------------------------------------------


def strided_collectives(base: tuple[int, ...], transposed: bool, step: int, dtype: torch.dtype) -> None:
    """Strided and empty tensors give what contiguous ones give, and what lies between their elements stays."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return (tensor.transpose(0, -1) if transposed else tensor)[..., ::step]

    rank, size = dist.get_rank(), dist.get_world_size()
    cpu = values(base, dtype, seed=1)
    device = cpu.to(NEURON)

    reduced = dense(cut(cpu)).to(computed_in(dtype))
    dist.all_reduce(reduced, dist.ReduceOp.MAX)
    cut(cpu).copy_(reduced)
    dist.all_reduce(cut(device), dist.ReduceOp.MAX)
    check_equal([device], [cpu])

    sources = values(base, dtype, seed=2), values(base, dtype, seed=3)
    gathered = [cut(torch.zeros(base, dtype=dtype, device=NEURON)) for _ in range(size)]
    dist.all_gather(gathered, cut(sources[0].to(NEURON)))
    expected = [bytes_of(dense(cut(sources[0]))) for _ in range(size)]
    dist.all_gather(expected, bytes_of(dense(cut(sources[0]))))
    check_bytes(gathered, expected)

    spread = sources[1].to(NEURON)
    dist.broadcast(cut(spread), size - 1)
    plain = bytes_of(dense(cut(sources[1])))
    dist.broadcast(plain, size - 1)
    check_bytes([cut(spread)], [plain])

    if rank == 0:
        dist.send(cut(spread), 1)
    elif rank == 1:
        received = torch.zeros(base, dtype=dtype, device=NEURON)
        dist.recv(cut(received), 0)
        check_bytes([cut(received)], [plain])


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy."""
    return tensor.clone(memory_format=torch.contiguous_format)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor, flat."""
    return tensor.view(-1).view(torch.uint8)


def check_bytes(on_device: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Check that device tensors hold exactly these bytes."""
    for device, cpu in zip(on_device, expected, strict=True):
        assert torch.equal(bytes_of(dense(device.cpu())), cpu)


def uneven_all_to_all(splits: list[list[int]], width: int, dtype: torch.dtype) -> None:
    """``splits[i][j]`` rows go from rank i to rank j."""
    rank, size = dist.get_rank(), dist.get_world_size()
    send = splits[rank][:size]
    receive = [splits[source][rank] for source in range(size)]
    source = values((sum(send), width), dtype, seed=3)
    wire = source.view(torch.uint8)
    expected = wire.new_empty(sum(receive), wire.shape[1])
    dist.all_to_all_single(expected, wire, receive, send)

    whole = torch.empty(sum(receive), width, dtype=dtype, device=NEURON)
    dist.all_to_all_single(whole, source.to(NEURON), receive, send)
    check_bytes([whole], [expected.view(-1)])
    parts = [torch.empty(rows, width, dtype=dtype, device=NEURON) for rows in receive]
    dist.all_to_all(parts, list(source.to(NEURON).split(send)))
    check_bytes(parts, [part.reshape(-1) for part in expected.split(receive)])


def uneven_reduce_scatter(rows: list[int]) -> None:
    """Each rank keeps another number of rows."""
    rank, size = dist.get_rank(), dist.get_world_size()
    inputs = [torch.full((rows[r], 2), float(rank + r), device=NEURON) for r in range(size)]
    output = torch.empty(rows[rank], 2, device=NEURON)
    dist.reduce_scatter(output, inputs)
    check_equal([output], [torch.full((rows[rank], 2), float(sum(range(size)) + size * rank))])


# Works ----------------------------------------------------------------------------------------------------------------


def work_of_a_collective() -> None:
    """An asynchronous work ends, and has its result, its future and its callbacks on the device."""
    tensor = neuron(1.0, 2.0)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.result()[0].device == NEURON
    (value,) = future.value()
    assert value.data_ptr() == tensor.data_ptr()
    size = dist.get_world_size()
    assert tensor.tolist() == [size, 2 * size]
    assert doubled.wait().tolist() == [2 * size, 4 * size]
    assert doubled.value().device == NEURON


def future_after_the_end() -> None:
    """A future that is asked for once the work has ended is completed, and the same whenever it is asked for."""
    tensor = neuron(1.0)
    work = dist.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    future = work.get_future()
    assert future.done()
    assert future.value()[0].data_ptr() == work.get_future().value()[0].data_ptr() == tensor.data_ptr()
    seen: list[float] = []
    future.add_done_callback(lambda done: seen.append(done.value()[0].item()))
    assert seen == [dist.get_world_size()]


def futures_while_works_end() -> None:
    """Asking for futures while works end loses none, and a work that says it has ended has a future that did."""
    size = dist.get_world_size()
    for delay in range(200):
        tensor = neuron(1.0)
        work = dist.all_reduce(tensor, async_op=True)
        time.sleep(delay * 1e-6)
        future = work.get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        while not work.is_completed():
            pass
        assert future.done()
        assert doubled.wait().item() == 2 * size
        work.wait()


def work_outlives_its_tensors() -> None:
    """A work keeps its tensors alive, and dropping it does not stop it."""
    size = dist.get_world_size()
    outputs = torch.zeros(size, 1 << 16, device=NEURON)
    dist.all_gather_single(outputs, torch.ones(1 << 16, device=NEURON), async_op=True)
    last = dist.all_gather_single(outputs.clone(), torch.ones(1 << 16, device=NEURON), async_op=True)
    del last
    dist.barrier()
    deadline = time.monotonic() + 60
    while outputs.sum().item() != outputs.numel() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert outputs.sum().item() == outputs.numel()


def futures_of_sends_and_receives() -> None:
    """A receive can be polled, and gives a future."""
    rank = dist.get_rank()
    if rank == 0:
        time.sleep(0.1)
        sent = dist.isend(neuron(5.0), 1)
        assert sent is not None
        assert sent.get_future().wait()[0].device == NEURON
        dist.send(neuron(6.0), 1)
    elif rank == 1:
        first, second = neuron(0.0), neuron(0.0)
        received = dist.irecv(first, 0)
        assert received is not None
        deadline = time.monotonic() + 60
        while not received.is_completed():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        received.wait()
        assert first.item() == 5.0
        future = dist.irecv(second, 0).get_future()
        assert future.then(lambda done: done.value()[0] + 1).wait().item() == 7.0


def receive_from_any() -> None:
    """A receive without a source says whom it came from."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            tensor = neuron(0.0)
            source = dist.recv(tensor)
            assert tensor.item() == source
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(neuron(float(rank)), 0)


def waits_time_out() -> None:
    """A wait that ends without an answer raises, and the group works afterwards."""
    rank = dist.get_rank()
    tensor = neuron(1.0)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        with raises(RuntimeError, "imed out"):
            work.wait(timedelta(milliseconds=50))
        assert not work.is_completed()
        dist.all_gather_object([None] * dist.get_world_size(), "go", group=_side_group())
    else:
        dist.all_gather_object([None] * dist.get_world_size(), "go", group=_side_group())
        work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert tensor.item() == dist.get_world_size()


_side: list[Any] = []


def _side_group() -> Any:
    return _side[0]


def make_side_group() -> None:
    """A group of CPU tensors beside the one under test."""
    if not _side:
        _side.append(dist.new_group(backend="gloo"))


def coalescing_of_single_calls() -> None:
    """Calls between start and end of a batch run, and one work stands for them all."""
    size = dist.get_world_size()
    first, second = neuron(1.0), neuron(2.0, 3.0)
    group = dist.group.WORLD
    assert group is not None
    backend = group._get_backend(NEURON)
    assert backend.supports_coalescing
    backend._start_coalescing()
    with raises(RuntimeError, "twice"):
        backend._start_coalescing()
    group.allreduce([first])
    group.allreduce([second])
    work = backend._end_coalescing()
    work.wait()
    assert [t.tolist() for t in work.result()] == [[size], [2 * size, 3 * size]]
    assert len(work.get_future().wait()) == 2
    assert work.is_completed()
    with raises(RuntimeError, "without startCoalescing"):
        backend._end_coalescing()
    dist.all_reduce(first)
    assert first.item() == size * size


# What is refused ------------------------------------------------------------------------------------------------------


def wrong_arguments() -> None:
    """Wrong use raises before anything is sent, so that the ranks stay in step."""
    size = dist.get_world_size()
    with raises(TypeError, "dtypes", "Float", "Int"):
        dist.distributed_c10d._get_default_group().allgather(
            [[neuron(0.0, dtype=torch.int32) for _ in range(size)]], [neuron(1.0)]
        )
    with raises(ValueError, "shape", "one input per rank"):
        dist.all_gather_single(torch.empty(size + 1, device=NEURON), neuron(1.0))
    with raises(ValueError, "one output per rank"):
        dist.reduce_scatter_single(torch.empty(2, device=NEURON), torch.ones(size, device=NEURON))
    with raises(TypeError, "bitwise", "integer"):
        dist.all_reduce(neuron(1.0), dist.ReduceOp.BAND)
    with raises(TypeError, "AVG", "Bool"):
        dist.all_reduce(neuron(1.0).bool(), dist.ReduceOp.AVG)
    with raises(TypeError, "PREMUL_SUM"):
        dist.all_reduce(neuron(1, dtype=torch.int32), dist._make_nccl_premul_sum(2.0))
    group = dist.distributed_c10d._get_default_group()
    with raises(ValueError, "on device cpu", "neuron"):
        group.allgather([[torch.zeros(1) for _ in range(size)]], [neuron(1.0)])
    tensor = neuron(1.0)
    dist.all_reduce(tensor)
    assert tensor.item() == size


def tensor_factor() -> None:
    """PREMUL_SUM takes its factor as a tensor too, of the device or not."""
    size = dist.get_world_size()
    for factor in (torch.tensor([3.0]), neuron(3.0)):
        tensor = neuron(1.0, 2.0)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        assert tensor.tolist() == [3.0 * size, 6.0 * size]


def reduce_leaves_the_others_alone() -> None:
    """Only the destination's tensor changes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16):
        tensor = neuron(1.0, 2.0, dtype=dtype)
        dist.reduce(tensor, 0)
        assert tensor.tolist() == ([size, 2 * size] if rank == 0 else [1.0, 2.0])


# Memory ---------------------------------------------------------------------------------------------------------------


def _settled_memory() -> int:
    """Bytes in use once garbage is gone: the carrier's thread lets go of a work a moment after it is awaited."""
    gc.collect()
    readings = [-2, -1]
    while len(set(readings[-8:])) > 1:
        time.sleep(0.05)
        readings.append(torch.accelerator.memory_allocated())
    return readings[-1]


def memory_of_plain_tensors() -> None:
    """Collectives on contiguous tensors take no device memory of their own."""
    size = dist.get_world_size()
    tensor = torch.ones(1 << 18, device=NEURON)
    many = torch.empty(size << 18, device=NEURON)
    before = _settled_memory()
    torch.accelerator.reset_peak_memory_stats()
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    dist.all_gather_single(many, tensor)
    assert torch.accelerator.max_memory_allocated() == before
    assert torch.accelerator.memory_allocated() == before


def memory_of_copies() -> None:
    """What a wider reduction needs is device memory, accounted while it lasts and given back."""
    tensor = torch.ones(1 << 18, device=NEURON, dtype=torch.bfloat16)
    before = _settled_memory()
    torch.accelerator.reset_peak_memory_stats()
    for _ in range(50):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    assert torch.accelerator.max_memory_allocated() >= before + (1 << 20)
    deadline = time.monotonic() + 60
    while torch.accelerator.memory_allocated() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert torch.accelerator.memory_allocated() == before


# Groups ---------------------------------------------------------------------------------------------------------------


def objects() -> None:
    """Object collectives work on a group that only has device tensors."""
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(backend="neuron")
    assert dist.get_backend(group) == "neuron"
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank}, group=group)
    assert gathered == [{"rank": r} for r in range(size)]
    box = [f"from {rank}"]
    dist.broadcast_object_list(box, src=size - 1, group=group)
    assert box == [f"from {size - 1}"]
    dist.barrier(group)
    dist.destroy_process_group(group)


def many_groups(count: int) -> None:
    """Groups can be made and destroyed over and over."""
    for _ in range(count):
        group = dist.new_group(backend="neuron")
        tensor = neuron(1.0)
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == dist.get_world_size()
        dist.destroy_process_group(group)


def functional_collectives() -> None:
    """The functional forms, eager, differentiated and compiled."""
    import torch.distributed._functional_collectives as functional

    group = dist.new_group(backend="neuron")
    size = dist.get_world_size()
    assert functional.all_reduce(neuron(1.0), "sum", group).tolist() == [size]
    x = neuron(1.0, 2.0).requires_grad_()
    functional.all_gather_single_autograd(x, 0, group).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [size, size]

    def program(x: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(x * 2, "sum", group) + 1

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    assert compiled(neuron(1.0)).tolist() == [2 * size + 1]
    dist.destroy_process_group(group)


# Training -------------------------------------------------------------------------------------------------------------


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))


def _batch() -> torch.Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(dist.get_rank()))


def ddp_step() -> None:
    """One step of DDP on the device equals one step of DDP on the CPU."""
    from torch.nn.parallel import DistributedDataParallel as DDP

    cpu, device = DDP(_model()), DDP(_model().to(NEURON))
    for model, batch in ((cpu, _batch()), (device, _batch().to(NEURON))):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        model(batch).square().mean().backward()
        optimizer.step()
    for reference, parameter in zip(cpu.parameters(), device.parameters(), strict=True):
        assert reference.grad is not None
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.cpu(), reference.grad)
        torch.testing.assert_close(parameter.detach().cpu(), reference.detach())


def ddp_no_sync_and_hook() -> None:
    """Accumulation without synchronisation, and a communication hook."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel as DDP

    model = DDP(_model().to(NEURON))
    with model.no_sync():
        model(_batch().to(NEURON)).sum().backward()
    model(_batch().to(NEURON)).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    hooked = DDP(_model().to(NEURON))
    hooked.register_comm_hook(None, default_hooks.fp16_compress_hook)
    (2 * hooked(_batch().to(NEURON)).sum()).backward()
    for parameter, gradient in zip(hooked.parameters(), gradients, strict=True):
        mean = gradient.clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, mean, rtol=5e-3, atol=5e-3)


def fsdp2_step() -> None:
    """One step of FSDP2 on the device equals the step of a whole model on the global batch on the CPU."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("neuron", (dist.get_world_size(),))
    reference, model = _model(), _model().to(NEURON)
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    batches = [torch.empty(6, 8) for _ in range(dist.get_world_size())]
    dist.all_gather(batches, _batch())

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(_batch().to(NEURON)).square().mean().backward()
    reference_optimizer = torch.optim.AdamW(reference.parameters(), lr=0.01)
    reference(torch.cat(batches)).square().mean().backward()
    for whole, shard in zip(reference.parameters(), model.parameters(), strict=True):
        assert whole.grad is not None
        torch.testing.assert_close(shard.grad.full_tensor().cpu(), whole.grad, rtol=1e-5, atol=1e-6)
    optimizer.step()
    reference_optimizer.step()
    for whole, shard in zip(reference.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(shard.full_tensor().detach().cpu(), whole.detach(), rtol=1e-5, atol=1e-4)


def tensor_parallel_step() -> None:
    """A column- and row-parallel pair equals the whole on the CPU, forward and backward."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("neuron", (dist.get_world_size(),))
    reference = _model()
    model = copy.deepcopy(reference).to(NEURON)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    batch = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))
    expected, result = reference(batch), model(batch.to(NEURON))
    torch.testing.assert_close(result.detach().cpu(), expected.detach())
    expected.sum().backward()
    result.sum().backward()
    first = next(iter(model.parameters())).grad
    assert first is not None
    torch.testing.assert_close(first.full_tensor().cpu(), next(iter(reference.parameters())).grad)


def memory_is_closed_after_collectives() -> None:
    """In protected mode, a finished collective leaves device memory unreadable: a child that reads it dies."""
    import ctypes
    import os
    import signal

    tensor = torch.ones(1 << 12, device=NEURON)
    dist.all_reduce(tensor)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    del work

    def child_status() -> int:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            ctypes.string_at(tensor.data_ptr(), 4)
            os._exit(0)
        return os.waitpid(child, 0)[1]

    # The carrier's thread closes the memory a moment after it completes the work.
    deadline = time.monotonic() + 60
    while (status := child_status()) == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert os.WIFSIGNALED(status), status
    assert os.WTERMSIG(status) == signal.SIGSEGV
