"""PyTorch's ways to train on several ranks. Each program trains on one kind of device; the test compares two runs.

A program returns what it computed, as CPU tensors: losses first, then the final parameters, this rank's part of each.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel as DDP

from ranks.compiled import compiled, fresh
from torch_neuronx_compile import metrics

STEPS = 20
Program = Callable[[str], list[torch.Tensor]]


class _Mode:
    compiles = False
    """Whether programs compile their models for the device."""


def compare_devices(program: Program, rtol: float, atol: float, folder: str | None = None) -> None:
    """Run a program on the CPU with Gloo and on the device, and compare what it computed.

    With a ``folder`` for caches, models are compiled on the device.
    """
    expected = program("cpu")
    if folder is None:
        found = program("neuron")
    else:
        with fresh(folder):
            _Mode.compiles = True
            try:
                found = program("neuron")
            finally:
                _Mode.compiles = False
            assert metrics.get_dynamo_metrics()
    assert len(expected) == len(found) > STEPS
    for number, (cpu, device) in enumerate(zip(expected, found, strict=True)):
        torch.testing.assert_close(device, cpu, rtol=rtol, atol=atol, msg=lambda text, n=number: f"tensor {n}: {text}")


def where(device: str) -> torch.device:
    return torch.device("neuron", 0) if device == "neuron" else torch.device("cpu")


def running(model: Callable[..., Any], device: str) -> Callable[..., Any]:
    """What is called in the place of a model, or of a function."""
    if not _Mode.compiles or device == "cpu":
        return model
    run: Callable[..., Any] = compiled(model)
    return run


def local(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).cpu().clone()


class Layers(nn.Sequential):
    """Layers in a row. Dynamo leaves modules of PyTorch's own as they are, this one it compiles."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self:
            x = layer(x)
        return x


class Dense(nn.Linear):
    """The same for a layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


def make_model() -> Layers:
    torch.manual_seed(0)
    return Layers(Dense(8, 16), nn.GELU(), Dense(16, 16), nn.GELU(), Dense(16, 4))


def batch(step: int, *, same_everywhere: bool = False) -> torch.Tensor:
    seed = 100 * step + (0 if same_everywhere else dist.get_rank())
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))


def fit(
    model: nn.Module,
    device: str,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    same_everywhere: bool = False,
    accumulate: bool = False,
) -> list[torch.Tensor]:
    """Train and return losses and parameters."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    run = running(model, device)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        if accumulate:
            assert isinstance(model, DDP)
            with model.no_sync():
                model(batch(step + 1000).to(device)).square().mean().backward()
        loss = run(batch(step, same_everywhere=same_everywhere).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(local(loss))
    return losses + [local(parameter) for parameter in model.parameters()]


# Data parallel --------------------------------------------------------------------------------------------------------


def ddp(device: str) -> list[torch.Tensor]:
    """Several buckets, and the device named as the index that a rank sees."""
    model = make_model().to(device)
    return fit(DDP(model, bucket_cap_mb=0.0005, device_ids=[0] if device == "neuron" else None), device)


def ddp_views(device: str) -> list[torch.Tensor]:
    """Gradients as views of buckets, a static graph, accumulation under no_sync."""
    return fit(DDP(make_model().to(device), gradient_as_bucket_view=True), device, accumulate=True)


def ddp_static_graph(device: str) -> list[torch.Tensor]:
    """A static graph with a layer that is checkpointed."""
    return fit(DDP(Checkpointed(make_model()).to(device), static_graph=True), device)


class Checkpointed(nn.Module):
    """Computes the activations of each layer again in backward."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class Branches(nn.Module):
    """Uses one of two layers, by turns."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.turn = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.turn += 1
        return self.last(self.first(x) if self.turn % 2 else self.second(x))


def ddp_unused_parameters(device: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = Branches().to(device)
    return fit(DDP(model, find_unused_parameters=True), device)


def ddp_fp16_hook(device: str) -> list[torch.Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DDP(make_model().to(device))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return fit(model, device)


def ddp_power_sgd_hook(device: str) -> list[torch.Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model = DDP(make_model().to(device))
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return fit(model, device)


def ddp_join(device: str) -> list[torch.Tensor]:
    """Ranks with more batches than others; those that are done take part in what the others reduce."""
    model = DDP(make_model().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    run = running(model, device)
    losses = []
    with model.join():
        for step in range(STEPS + 2 * dist.get_rank()):
            optimizer.zero_grad()
            loss = run(batch(step).to(device)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(local(loss))
    return losses + [local(parameter) for parameter in model.parameters()]


def zero_optimizer(device: str) -> list[torch.Tensor]:
    """The optimizer's state spread over the ranks."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(make_model().to(device))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=0.01, eps=1e-5)
    return fit(model, device, optimizer=optimizer)


def fsdp1(device: str) -> list[torch.Tensor]:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FSDP(
        make_model().to(device),
        auto_wrap_policy=ModuleWrapPolicy({Dense}),
        device_id=where(device),
        use_orig_params=True,
    )
    return fit(model, device)


def _fsdp2(device: str, model: nn.Module | None = None, **options: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (dist.get_world_size(),))
    model = (model or make_model()).to(device)
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            if _Mode.compiles and device == "neuron":
                layer.compile(backend="neuron")  # FSDP's own collectives stay outside of graphs
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fsdp2(device: str) -> list[torch.Tensor]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    model = _fsdp2(device)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return fit(model, device) + list(whole.values())


def fsdp2_keeps_parameters(device: str) -> list[torch.Tensor]:
    """Without resharding after forward, and with checkpointed activations."""
    return fit(_fsdp2(device, Checkpointed(make_model()), reshard_after_forward=False), device)


def fsdp2_mixed_precision(device: str) -> list[torch.Tensor]:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    return fit(_fsdp2(device, mp_policy=policy), device)


def fsdp2_offload(device: str) -> list[torch.Tensor]:
    """Parameters, gradients and optimizer live in host memory on the device's run."""
    from torch.distributed.fsdp import CPUOffloadPolicy

    if device == "cpu":
        return fit(_fsdp2(device), device)
    return fit(_fsdp2("neuron", offload_policy=CPUOffloadPolicy()), "neuron")


# Pipelines ------------------------------------------------------------------------------------------------------------

MICROBATCHES = 8


def _pipeline(device: str, schedule: Any, stages_per_rank: int) -> list[torch.Tensor]:
    """Train a model cut into stages, which the ranks get by turns."""
    from torch.distributed.pipelining import PipelineStage

    rank, size = dist.get_rank(), dist.get_world_size()
    count = stages_per_rank * size
    blocks = nn.ModuleList()
    for number in range(rank, count, size):
        torch.manual_seed(number)
        blocks.append(Layers(nn.Linear(8, 8), nn.Tanh()))
    blocks.to(device)
    if _Mode.compiles and device == "neuron":
        for block in blocks:
            block.compile(backend="neuron")
    stages = [PipelineStage(block, rank + i * size, count, where(device)) for i, block in enumerate(blocks)]
    runner = schedule(stages if stages_per_rank > 1 else stages[0], MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.5, momentum=0.9)
    losses = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        inputs, targets = (torch.randn(2 * MICROBATCHES, 8, generator=generator).to(device) for _ in range(2))
        optimizer.zero_grad()
        parts: list[torch.Tensor] = []
        given = (inputs,) if rank == 0 else ()
        runner.step(*given, **({"target": targets, "losses": parts} if rank == size - 1 else {}))
        optimizer.step()
        losses.append(torch.stack([local(part) for part in parts]) if parts else torch.empty(0))
    return losses + [local(parameter) for parameter in blocks.parameters()]


def pipeline_gpipe(device: str) -> list[torch.Tensor]:
    from torch.distributed.pipelining import ScheduleGPipe

    return _pipeline(device, ScheduleGPipe, 1)


def pipeline_1f1b(device: str) -> list[torch.Tensor]:
    from torch.distributed.pipelining import Schedule1F1B

    return _pipeline(device, Schedule1F1B, 1)


def pipeline_interleaved(device: str) -> list[torch.Tensor]:
    from torch.distributed.pipelining import ScheduleInterleaved1F1B

    return _pipeline(device, ScheduleInterleaved1F1B, 2)


def pipeline_breadth_first(device: str) -> list[torch.Tensor]:
    from torch.distributed.pipelining.schedules import ScheduleLoopedBFS

    return _pipeline(device, ScheduleLoopedBFS, 2)


def pipeline_zero_bubble(device: str) -> list[torch.Tensor]:
    """Gradients of inputs and of weights apart."""
    from torch.distributed.pipelining import ScheduleInterleavedZeroBubble

    return _pipeline(device, ScheduleInterleavedZeroBubble, 2)


# Tensor, sequence, expert, context parallel ---------------------------------------------------------------------------


class Block(nn.Module):
    """A normalised feed-forward layer and a head over a small vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down, self.head = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.head(x + self.down(self.up(self.norm(x)).relu()))
        return hidden


def tensor_parallel(device: str) -> list[torch.Tensor]:
    """Columns and rows, the sequence between them, and a loss over logits that stay cut."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

    torch.manual_seed(0)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    plan = {
        "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    model = parallelize_module(Block().to(device), mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    run = running(model, device)
    losses = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(2, 8, 8, generator=generator).to(device)
        target = torch.randint(0, 12, (16,), generator=generator).to(device)
        optimizer.zero_grad()
        with loss_parallel():
            loss = nn.functional.cross_entropy(run(x).flatten(0, 1), target)
            loss.backward()
        optimizer.step()
        losses.append(local(loss.full_tensor() if isinstance(loss, DTensor) else loss))
    return losses + [local(parameter) for parameter in model.parameters()]


def expert_parallel(device: str) -> list[torch.Tensor]:
    """Each rank has one expert; tokens travel to their expert and back, unevenly."""
    import torch.distributed._functional_collectives as functional

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    router = nn.Linear(8, size).to(device)
    torch.manual_seed(rank)
    expert = nn.Linear(8, 8).to(device)
    group = dist.group.WORLD
    parameters = [*router.parameters(), *expert.parameters()]

    def step_of(tokens: torch.Tensor, chosen: torch.Tensor, received: list[int], sent: list[int]) -> torch.Tensor:
        scores = router(tokens).softmax(-1)
        weights = scores.gather(1, chosen[:, None])
        there = functional.all_to_all_single_autograd(tokens, received, sent, group)
        back = functional.all_to_all_single_autograd(expert(there).tanh(), sent, received, group)
        mean: torch.Tensor = (back * weights).square().mean()
        return mean

    run = running(step_of, device)
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    losses = []
    for step in range(STEPS):
        tokens = batch(step).to(device)
        chosen = (torch.arange(len(tokens)) * (step + rank + 1) % size).sort().values  # the experts of the tokens
        sent = chosen.bincount(minlength=size)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        loss = run(tokens, chosen.to(device), received.tolist(), sent.tolist())
        optimizer.zero_grad()
        loss.backward()
        for parameter in router.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.SUM)
        optimizer.step()
        losses.append(local(loss))
    return losses + [local(parameter) for parameter in parameters]


def context_parallel(device: str) -> list[torch.Tensor]:
    """Causal attention over a sequence that is cut over the ranks: own queries, everybody's keys and values."""
    import torch.distributed._functional_collectives as functional

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    projection = nn.Linear(8, 24).to(device)
    optimizer = torch.optim.SGD(projection.parameters(), lr=0.05)
    group = dist.group.WORLD
    own, length = 8, 8 * size
    positions = torch.arange(length, device=device)
    seen = positions[rank * own : (rank + 1) * own, None] >= positions

    def part_of(x: torch.Tensor) -> torch.Tensor:
        q, k, v = projection(x).chunk(3, -1)
        keys, values = (functional.all_gather_single_autograd(part.contiguous(), 0, group) for part in (k, v))
        heads = [part.unflatten(-1, (2, 4)).transpose(0, 1)[None] for part in (q, keys, values)]
        total: torch.Tensor = nn.functional.scaled_dot_product_attention(*heads, attn_mask=seen).square().sum()
        return total / length

    run = running(part_of, device)
    losses = []
    for step in range(STEPS):
        x = torch.randn(length, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = run(x[rank * own : (rank + 1) * own].to(device))
        loss.backward()
        for parameter in projection.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        losses.append(local(loss))
    return losses + [local(parameter) for parameter in projection.parameters()]


def context_parallel_ring(device: str) -> list[torch.Tensor]:
    """The same by rings of keys and values; on the CPU, where PyTorch has none, every rank has the whole sequence."""
    return _ring(device, causal=True)


def context_parallel_ring_whole(device: str) -> list[torch.Tensor]:
    """Rings where every position sees the whole sequence."""
    return _ring(device, causal=False)


def _ring(device: str, *, causal: bool) -> list[torch.Tensor]:
    from torch_neuronx_dist.attention import context_parallel

    size = dist.get_world_size()
    torch.manual_seed(0)
    projection = nn.Linear(8, 24).to(device)
    optimizer = torch.optim.SGD(projection.parameters(), lr=0.05)
    mesh = init_device_mesh(device, (size,))
    length = 8 * size
    losses = []
    for step in range(STEPS):
        x = torch.randn(2, length, 8, generator=torch.Generator().manual_seed(step)).to(device)
        optimizer.zero_grad()
        with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]) if device == "neuron" else nullcontext():
            q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in projection(x).chunk(3, -1))
            loss = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).square().sum() / length
            loss.backward()
        if device == "neuron":
            for tensor in (loss.detach(), *(parameter.grad for parameter in projection.parameters())):
                dist.all_reduce(tensor)
        optimizer.step()
        losses.append(local(loss))
    return losses + [local(parameter) for parameter in projection.parameters()]


def context_parallel_takes(mesh_size: int) -> None:
    """Groups of heads, 16 bits and a scale: each rank's part of what the whole sequence gives."""
    from torch_neuronx_dist.attention import context_parallel

    mesh = init_device_mesh("neuron", (mesh_size,))
    for dtype, causal in ((torch.float32, True), (torch.bfloat16, False)):
        torch.manual_seed(0)
        query, key, value = (torch.randn(1, heads, 8 * mesh_size, 4, dtype=dtype) for heads in (4, 2, 2))
        options: dict[str, Any] = {"is_causal": causal, "enable_gqa": True, "scale": 0.7}
        whole = nn.functional.scaled_dot_product_attention(query, key, value, **options)
        buffers = [tensor.to("neuron") for tensor in (query, key, value, whole)]
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 4):
            part = nn.functional.scaled_dot_product_attention(*buffers[:3], **options)
            tolerance = {"rtol": 2e-2, "atol": 1e-2} if dtype is torch.bfloat16 else {}
            torch.testing.assert_close(part.cpu(), buffers[3].cpu(), **tolerance)


def context_parallel_refuses(mesh_size: int) -> None:
    """What the ring cannot do is an error on every rank, and attention is whole again afterwards."""
    from torch_neuronx_dist.attention import context_parallel

    mesh = init_device_mesh("neuron", (mesh_size,))
    x = torch.ones(1, 1, 4 * mesh_size, 2, device="neuron")
    seen = torch.ones(1, 1, 4, 4, device="neuron")
    with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]), pytest.raises(NotImplementedError, match="a mask"):
        nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=seen)
    assert x.shape[2] == 4 * mesh_size
    assert torch.equal(nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).cpu(), x.cpu())


# Checkpoints ----------------------------------------------------------------------------------------------------------


def save_checkpoints(at_once: str, in_the_background: str) -> list[torch.Tensor]:
    """Train sharded, save model and optimizer in both ways, and return the whole parameters that were saved."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model = _fsdp2("neuron")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    fit(model, "neuron", optimizer=optimizer, same_everywhere=True)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    saved = [parameter.full_tensor().detach().cpu() for parameter in model.parameters()]
    checkpoint.save(state, checkpoint_id=at_once)
    saving = checkpoint.async_save(state, checkpoint_id=in_the_background)
    fit(model, "neuron", optimizer=optimizer, same_everywhere=True)  # what goes on meanwhile changes what was given
    saving.result()
    return saved


def load_checkpoint(folder: str) -> list[torch.Tensor]:
    """Load what another number of ranks saved, and return the whole parameters before and after more training."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model = _fsdp2("neuron", Layers(*make_model()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    loaded = [parameter.full_tensor().detach().cpu() for parameter in model.parameters()]
    steps = {int(optimizer.state[parameter]["step"].item()) for parameter in model.parameters()}
    assert steps == {STEPS}
    fit(model, "neuron", optimizer=optimizer, same_everywhere=True)
    return loaded
