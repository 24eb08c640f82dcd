"""Programs that run collectives inside compiled graphs, on every rank of a world."""

import copy
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from ranks.compare import group_of, values
from ranks.programs import NEURON

Function = Callable[..., Any]


@contextmanager
def fresh(folder: str) -> Iterator[None]:
    """Compile anew, with caches in ``folder``, which all ranks share."""
    from torch_neuronx_compile import metrics

    names = {
        "TORCH_NEURONX_NEFF_CACHE_DIR": "neff",
        "TORCH_NEURONX_HLO_CACHE_DIR": "hlo",
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": "local",
        "TORCH_NEURONX_DEBUG_DIR": "debug",
        "TORCHINDUCTOR_CACHE_DIR": f"inductor_{dist.get_rank()}",
    }
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(Path(folder) / place) for name, place in names.items()})
    torch._dynamo.reset()
    metrics.reset_dynamo_metrics()
    try:
        yield
    finally:
        torch._dynamo.reset()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def compiled(function: Any, **options: Any) -> Any:
    """Compile for the device."""
    return torch.compile(function, backend="neuron", **options)


def leaves(value: Any) -> list[Tensor]:
    """The tensors of a result."""
    return [value] if isinstance(value, Tensor) else list(value)


# Functional collectives -----------------------------------------------------------------------------------------------


def _all_reduces(x: Tensor, group: Any) -> Any:
    return [functional.all_reduce(x * 2, op, group) + 1 for op in ("sum", "avg", "min", "max", "product")]


def _integers(x: Tensor, group: Any) -> Any:
    numbers = (x * 10).int()
    results = [functional.all_reduce(numbers, op, group) for op in ("sum", "avg", "band", "bor", "bxor")]
    return [*results, functional.all_reduce(x > 0, "sum", group), functional.all_reduce(x > 0, "product", group)]


def _narrow_floats(x: Tensor, group: Any) -> Any:
    return [functional.all_reduce(x.to(dtype), "sum", group) for dtype in (torch.bfloat16, torch.float16)]


def _gathers(x: Tensor, group: Any) -> Any:
    return [functional.all_gather_single(x, dim, group) for dim in (0, 1)] + [
        functional.all_gather_single(x.sum(), 0, group)
    ]


def _reduce_scatters(x: Tensor, group: Any) -> Any:
    return [functional.reduce_scatter_single(x, op, dim, group) for op in ("sum", "avg", "max") for dim in (0, 1)]


def _all_to_alls(x: Tensor, group: Any) -> Any:
    return functional.all_to_all_single(x + 1, None, None, group)


def _broadcasts(x: Tensor, group: Any) -> Any:
    return [functional.broadcast(x * 3, source, group) for source in (0, group.size() - 1)]


def _coalesced(x: Tensor, group: Any) -> Any:
    return [
        *functional.all_reduce_coalesced([x, x * 2], "sum", group),
        *functional.all_gather_single_coalesced([x, x * 2], group),
        *functional.reduce_scatter_single_coalesced([x, x * 2], "sum", [0, 0], group),
    ]


def _in_place(x: Tensor, group: Any) -> Any:
    reduced, gathered = x * 2, x.new_empty(x.shape[0] * group.size(), x.shape[1])
    dist.all_reduce(reduced, group=group)
    dist.all_gather_single(gathered, x, group=group)
    return reduced + 1, gathered * 2


def _order_without_dependence(x: Tensor, group: Any) -> Any:
    return [functional.all_reduce(x + i, "sum", group) for i in range(12)]


FUNCTIONS: dict[str, Function] = {
    "all_reduce": _all_reduces,
    "integers": _integers,
    "narrow_floats": _narrow_floats,
    "all_gather": _gathers,
    "reduce_scatter": _reduce_scatters,
    "all_to_all": _all_to_alls,
    "broadcast": _broadcasts,
    "coalesced": _coalesced,
    "in_place": _in_place,
    "order": _order_without_dependence,
}


def equals_eager(name: str, folder: str) -> None:
    """A compiled collective gives what the eager one gives, also where rank 0 calls the eager one meanwhile."""
    group = group_of("world")
    x = values((8, 4), torch.float32, seed=1).to(NEURON)
    expected = FUNCTIONS[name](x, group)
    with fresh(folder):
        run = compiled(lambda x: FUNCTIONS[name](x, group), fullgraph=True)
        _check_equal(run(x), expected)
        if name != "coalesced":  # one call in eager mode, and one for each tensor in a graph
            _check_equal(FUNCTIONS[name](x, group) if dist.get_rank() == 0 else run(x), expected)


def equal_eager_in_one_graph(layout: str, folder: str) -> None:
    """All of them in one graph give what they give in eager mode, in any layout of groups."""
    group = group_of(layout)

    def everything(x: Tensor) -> list[Any]:
        return [function(x, group) for function in FUNCTIONS.values()]

    x = values((8, 4), torch.float32, seed=1).to(NEURON)
    with fresh(folder):
        actual = compiled(everything, fullgraph=True)(x)
    for result, expected in zip(actual, everything(x), strict=True):
        _check_equal(result, expected)


def _check_equal(actual: Any, expected: Any) -> None:
    for one, other in zip(leaves(actual), leaves(expected), strict=True):
        assert one.device == NEURON
        torch.testing.assert_close(one.cpu(), other.cpu())


def gradients_equal_eager(folder: str) -> None:
    """Collectives in the backward graph: those of every differentiable collective."""

    def function(x: Tensor) -> Tensor:
        group = group_of("world")
        y = functional.all_gather_single_autograd(x * 2, 0, group)
        z = functional.reduce_scatter_single_autograd(y * y, "sum", 0, group)
        w = functional.all_to_all_single_autograd(z, None, None, group)
        return functional.all_reduce(w * z, "sum", group).square().sum()

    x = values((8, 4), torch.float32, seed=1).to(NEURON)
    given, reference = x.clone().requires_grad_(), x.clone().requires_grad_()
    with fresh(folder):
        compiled(function, fullgraph=True)(given).backward()
    function(reference).backward()
    assert given.grad is not None
    assert reference.grad is not None
    torch.testing.assert_close(given.grad.cpu(), reference.grad.cpu())


# One program ----------------------------------------------------------------------------------------------------------


def compile_events(folder: str) -> list[tuple[str, bool, int]]:
    """Compile the same function for both halves of the world; returns key, collectives and whether it was made here."""
    from torch_neuronx_compile import metrics

    group = group_of("halves")
    x = values((8, 4), torch.float32, seed=1).to(NEURON)
    with fresh(folder):
        compiled(lambda x: functional.all_reduce(x * 2, "sum", group) @ x.t(), fullgraph=True)(x)
        compiled(lambda x: x @ x.t(), fullgraph=True)(x)
        return [
            (record.graph_id, record.has_collectives, int(record.found_in is None))
            for record in metrics.get_dynamo_metrics()
        ]


def ranks_of_artifacts(folder: str) -> tuple[int, list[str]]:
    """Return the rank that the helper names, and the folders that artifacts are written to."""
    from torch_neuronx.neuron_dynamo_backend import get_rank

    group = group_of("world")
    os.environ["TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS"] = "1"
    try:
        with fresh(folder):
            compiled(lambda x: functional.all_reduce(x, "sum", group) * 5)(values((4,), torch.float32, 1).to(NEURON))
    finally:
        del os.environ["TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS"]
    dist.barrier()
    return get_rank(), sorted(path.name for path in (Path(folder) / "debug" / "neff").iterdir())


# What cannot be compiled, and what fails ------------------------------------------------------------------------------


def uneven_parts_break_the_graph(folder: str) -> None:
    """Parts of different sizes have no StableHLO: that call is eager, and meets a rank whose parts are equal."""
    group, rank = dist.group.WORLD, dist.get_rank()
    rows = [[2, 2, 2, 2], [2, 1, 4, 1], [2, 0, 3, 3], [2, 3, 0, 3]]  # from each rank, for each
    sent, received = rows[rank], [row[rank] for row in rows]

    def function(x: Tensor) -> Tensor:
        return functional.all_to_all_single_autograd(x + 1, received, sent, group) * 2

    x = values((8, 2), torch.float32, seed=1).to(NEURON)
    given, reference = x.clone().requires_grad_(), x.clone().requires_grad_()
    with fresh(folder):
        actual = compiled(function)(given)
    expected = function(reference)
    torch.testing.assert_close(actual.cpu(), expected.cpu())
    for result in (actual, expected):
        result.square().sum().backward()
    assert given.grad is not None
    assert reference.grad is not None
    torch.testing.assert_close(given.grad.cpu(), reference.grad.cpu())


def point_to_point_breaks_the_graph(folder: str) -> None:
    """Sends and receives run in eager mode, between graphs, whether or not Dynamo is to trace them."""
    other = 1 - dist.get_rank()

    def one_way(x: Tensor) -> Tensor:
        buffer = (x + 1).detach()
        work = dist.isend(buffer, 1) if other == 1 else dist.irecv(buffer, 0)
        assert work is not None
        work.wait()
        return buffer * x

    def both_ways(x: Tensor) -> Tensor:
        given, taken = (x + 1).detach(), torch.zeros_like(x)
        ways = [dist.P2POp(dist.isend, given, other), dist.P2POp(dist.irecv, taken, other)]
        for work in dist.batch_isend_irecv(ways):
            work.wait()
        return taken * x

    for traced in (False, True):
        for function, source in ((one_way, 0), (both_ways, other)):
            x = torch.full((4,), float(dist.get_rank() + 1), device=NEURON, requires_grad=True)
            with fresh(folder), torch._dynamo.config.patch(enable_p2p_compilation=traced):
                result = compiled(function)(x)
                result.sum().backward()
            received = source + 2.0
            assert result.tolist() == [received * (dist.get_rank() + 1)] * 4
            assert x.grad is not None
            assert x.grad.tolist() == [received] * 4


def irregular_groups(folder: str) -> None:
    """Groups of any ranks: where the others make up groups of the size the program has them, else the graph breaks."""
    for ranks in ([0, 3], [1, 3], [0, 1, 3]):
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            x = values((4, 2), torch.float32, seed=1).to(NEURON)
            with fresh(folder):
                function = compiled(lambda x, group=group: functional.all_reduce(x, "sum", group) * 2)
                actual = function(x)
            torch.testing.assert_close(actual.cpu(), (functional.all_reduce(x, "sum", group) * 2).cpu())
        dist.barrier()


def _all_reduce_in_both_modes(ranks: list[int]) -> list[tuple[Function, Any]]:
    """A compiled sum and one of eager mode, each in a group of its own that waits for a second, and the groups."""
    # Of groups with the same ranks a graph uses the oldest.
    groups = [dist.new_group(ranks, timeout=timedelta(seconds=1)) for _ in range(2)]

    def total(group: Any) -> Function:
        return lambda x: functional.all_reduce(x, "sum", group).cpu()

    return [(compiled(total(groups[0])), groups[0]), (total(groups[1]), groups[1])]


def _error_of(function: Function, x: Tensor) -> tuple[str, str]:
    """Kind and text of what a call raises, without the group's name, the time, and the transport's own words."""
    with pytest.raises(dist.DistBackendError) as caught:
        function(x)
    text, _, words = str(caught.value).partition(" The transport says: ")
    assert words
    text = re.sub(r"group '\d+'", "group 'name'", text)
    return type(caught.value).__name__, re.sub(r"after [\d.]+ s", "after seconds", text)


def errors_where_a_rank_hangs(folder: str) -> list[tuple[str, str]] | None:
    """What rank 0 hears, compiled and in eager mode, when rank 1 does not call."""
    both = _all_reduce_in_both_modes([0, 1])
    x = torch.ones(4, device=NEURON)
    errors = None
    with fresh(folder):
        if dist.get_rank() == 0:
            with ThreadPoolExecutor(2) as pool:  # most of their time is a wait
                errors = list(pool.map(lambda mode: _error_of(mode[0], x), both))
    dist.barrier()
    return errors


def errors_where_a_rank_differs(folder: str) -> list[tuple[str, str]] | None:
    """What ranks 1 and 2 hear, compiled and in eager mode, when rank 2 broadcasts instead of a sum."""
    both = _all_reduce_in_both_modes([1, 2])
    errors = None
    x = torch.ones(4, device=NEURON)
    with fresh(folder):
        if dist.get_rank() == 1:
            errors = [_error_of(function, x) for function, _ in both]
        elif dist.get_rank() == 2:
            errors = [_error_of(lambda x, group=group: dist.broadcast(x, 1, group), x) for _, group in both]
    dist.barrier()
    return errors


def errors_where_sizes_differ(folder: str) -> list[str] | None:
    """What ranks 2 and 3 hear of tensors of different sizes, in a program and after it in eager mode."""
    group = dist.new_group([2, 3], timeout=timedelta(seconds=2))
    errors = None
    if dist.get_rank() in (2, 3):
        x = torch.ones(dist.get_rank() * 100, device=NEURON)
        with fresh(folder):
            run = compiled(lambda x: functional.all_reduce(x, "sum", group).cpu(), fullgraph=True)
            with pytest.raises(dist.DistBackendError) as caught:
                run(x)
        errors = [str(caught.value)]
        if "were compared" in errors[0]:
            with pytest.raises(dist.DistBackendError) as caught:
                dist.all_reduce(x, group=group)
            errors.append(str(caught.value))
    dist.barrier()
    return errors


def debug_mode(folder: str) -> None:
    """With torch's wrapper around groups, graphs run, and tensors of different sizes or dtypes are an error in time."""
    rank = dist.get_rank()
    unequal = [
        (torch.ones(4 + rank), ("all_reduce of 4 Float", "all_reduce of 5 Float")),
        (torch.ones(4, dtype=(torch.int32, torch.float32)[rank]), ("all_reduce of 4 Int", "all_reduce of 4 Float")),
    ]
    for tensor, _ in unequal:
        with pytest.raises(RuntimeError, match="Detected mismatch between collectives on ranks"):
            dist.all_reduce(tensor.to(NEURON))
    with fresh(folder):
        run = compiled(lambda x: functional.all_reduce(x, "sum", dist.group.WORLD), fullgraph=True)
        for tensor, calls in unequal:
            with pytest.raises(dist.DistBackendError) as caught:
                run(tensor.to(NEURON))
            own, other = calls[rank], calls[1 - rank]
            assert f"rank {1 - rank} called {other} there, and rank {rank} called {own}." in str(caught.value)
        assert run(torch.ones(4, device=NEURON)).tolist() == [float(dist.get_world_size())] * 4


def a_peer_dies(folder: str) -> None:
    """The last rank ends between two calls; the others' program raises what eager mode does."""
    x = torch.ones(4, device=NEURON)
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    with fresh(folder):
        run = compiled(lambda x: functional.all_reduce(x, "sum", dist.group.WORLD), fullgraph=True)
        run(x)
        if rank == last:
            os._exit(1)
        with pytest.raises(dist.DistBackendError) as caught:
            run(x)
    text = str(caught.value)
    assert text.startswith(f"all_reduce (number 2 of group '0') failed on rank {rank} after ")
    assert f" s: rank {last} of the group did not arrive. Look at what it printed last" in text
    assert " The transport says: " in text


# Parallelisms ---------------------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Two layers with something between them."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(self.norm(x))))


def _mlp() -> Mlp:
    torch.manual_seed(0)
    return Mlp()


def _whole(tensor: Any) -> Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().cpu()


def _mesh() -> DeviceMesh:
    return init_device_mesh("neuron", (dist.get_world_size(),))


def _check_step(model: nn.Module, reference: nn.Module, given: Tensor, expected: Tensor) -> None:
    """Compare a loss and the gradients of parameters, those of a model in one piece on the CPU."""
    torch.testing.assert_close(_whole(given), expected.detach(), rtol=1e-4, atol=1e-5)
    given.backward()
    expected.backward()
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(_whole(one.grad), other.grad, rtol=1e-4, atol=1e-5)


def tensor_parallel(sequence: bool, folder: str) -> None:
    """Column, row and sequence parallel layers in one graph equal the model in one piece."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    reference = _mlp()
    model, mesh = copy.deepcopy(reference).to(NEURON), _mesh()
    plan: dict[str, Any] = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if sequence:
        plan = {
            "norm": SequenceParallel(sequence_dim=0),
            "up": ColwiseParallel(input_layouts=Shard(0)),
            "down": RowwiseParallel(),
        }
        parallelize_module(model, mesh, PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(0)))
    parallelize_module(model, mesh, plan)
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(7))
    with fresh(folder):
        loss = compiled(model, fullgraph=True)(x.to(NEURON)).square().mean()
        _check_step(model, reference, loss, reference(x).square().mean())


def loss_parallel(folder: str) -> None:
    """The cross entropy over classes that are sharded."""
    from torch.distributed.tensor.parallel import loss_parallel as parallel

    mesh = _mesh()
    logits = torch.randn(6, 16, generator=torch.Generator().manual_seed(7))
    labels = torch.arange(6) * 2
    reference = logits.clone().requires_grad_()
    expected = nn.functional.cross_entropy(reference, labels)
    expected.backward()
    given = distribute_tensor(logits.to(NEURON), mesh, [Shard(1)]).requires_grad_()
    targets = distribute_tensor(labels.to(NEURON), mesh, [Replicate()])
    with fresh(folder), parallel():
        loss = compiled(nn.functional.cross_entropy)(given, targets)
        loss.backward()
    torch.testing.assert_close(_whole(loss), expected.detach())
    assert given.grad is not None
    torch.testing.assert_close(_whole(given.grad), reference.grad)


def _batches() -> list[Tensor]:
    return [torch.randn(4, 8, generator=torch.Generator().manual_seed(rank)) for rank in range(dist.get_world_size())]


def ddp(inside: bool, folder: str) -> int:
    """DDP around a compiled module, and compiled DDP, whose graph PyTorch splits at its buckets of 1 MB.

    Returns how many graphs there were.
    """
    from torch.nn.parallel import DistributedDataParallel

    from torch_neuronx_compile import metrics

    torch.manual_seed(0)
    reference = Mlp(40_000)
    model: Any = copy.deepcopy(reference).to(NEURON)
    parameters = list(model.parameters())
    batches = _batches()
    with fresh(folder):
        if inside:
            run = DistributedDataParallel(compiled(model))
        else:
            run = compiled(DistributedDataParallel(model, bucket_cap_mb=1))
        run(batches[dist.get_rank()].to(NEURON)).square().mean().backward()
        graphs = len(metrics.get_dynamo_metrics())
    reference(torch.cat(batches)).square().mean().backward()
    for one, other in zip(parameters, reference.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-5)
    return graphs


class Gathered(nn.Module):
    """A parametrization that stores a shard and computes with the whole; its gradient is scattered."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.mesh = mesh

    def forward(self, shard: Any) -> Tensor:
        from torch.distributed.tensor import Partial

        whole = shard.redistribute(self.mesh, [Replicate()])
        result: Tensor = whole.to_local(grad_placements=[Partial("avg")])
        return result


def simple_fsdp(folder: str) -> list[bool]:
    """Sharding in the traced graph: one graph forward, one backward, both with collectives."""
    from torch.nn.utils.parametrize import register_parametrization

    from torch_neuronx_compile import metrics

    reference = _mlp()
    model, mesh = copy.deepcopy(reference).to(NEURON), _mesh()
    for layer in (model.norm, model.up, model.down):
        for name, parameter in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)])))
            register_parametrization(layer, name, Gathered(mesh), unsafe=True)
    batches = _batches()
    with fresh(folder):
        loss = compiled(model, fullgraph=True)(batches[dist.get_rank()].to(NEURON)).square().mean()
        loss.backward()
        found = [record.has_collectives for record in metrics.get_dynamo_metrics()]
    reference(torch.cat(batches)).square().mean().backward()
    expected = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        whole = name.replace("parametrizations.", "").replace(".original", "")
        torch.testing.assert_close(_whole(parameter.grad), expected[whole].grad, rtol=1e-4, atol=1e-5)
    return found


def guards_diverge(folder: str) -> int:
    """Ranks whose guards differ compile together; returns how often this rank compiled."""
    count = 0

    def counting(graph: Any, inputs: Any) -> Any:
        from torch_neuronx_compile.backend import neuron

        nonlocal count
        count += 1
        return neuron(graph, inputs)

    def function(x: Tensor, factor: int) -> Tensor:
        return functional.all_reduce(x * factor, "sum", dist.group.WORLD)

    x = torch.ones(4, device=NEURON)
    # The collective that agrees on guards runs on CPU tensors and the default group.
    before = torch.compiler.set_enable_guard_collectives(True)
    try:
        with fresh(folder):
            run = torch.compile(function, backend=counting, fullgraph=True, dynamic=False)
            assert run(x, 2).tolist() == [2.0 * dist.get_world_size()] * 4
            factor = 3 if dist.get_rank() == 0 else 2  # only rank 0's guards fail
            total = 3 + 2 * (dist.get_world_size() - 1)
            assert run(x, factor).tolist() == [float(total)] * 4
    finally:
        torch.compiler.set_enable_guard_collectives(before)
    return count
