"""What a training step keeps from its forward pass for its backward pass."""

import gc

import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils.checkpoint import CheckpointPolicy

from torch_neuronx_compile.capture import aot
from torch_neuronx_compile.capture.recomputation import keep_costly

WIDTH, ROWS = 256, 1024
ACTIVATION = WIDTH * ROWS * 4
"""The bytes of one activation."""


def kept(model: nn.Module, x: Tensor) -> int:
    """Return the bytes allocated between forward and backward, beyond what was there before."""
    for _ in range(2):
        model(x).sum().backward()
        model.zero_grad()
    gc.collect()
    before = torch.accelerator.memory_allocated()
    loss = model(x).sum()
    grown = torch.accelerator.memory_allocated() - before
    loss.backward()
    return grown


@pytest.mark.parametrize("activation", [nn.GELU, nn.SiLU, nn.Tanh, nn.LeakyReLU])
def test_cheap_results_are_computed_again(activation: type[nn.Module]) -> None:
    """Of each layer one activation is kept, the product; eager mode keeps the activation function's too."""
    layers = 4
    parts = (part for _ in range(layers) for part in (nn.Linear(WIDTH, WIDTH), activation()))
    model = nn.Sequential(*parts, nn.Linear(WIDTH, WIDTH)).to("neuron")
    x = torch.randn(ROWS, WIDTH).to("neuron")
    assert kept(torch.compile(model, backend="neuron", fullgraph=True), x) < (layers + 0.5) * ACTIVATION


def test_a_step_keeps_no_more_than_in_eager_mode() -> None:
    block = nn.TransformerEncoderLayer(WIDTH, 8, 2 * WIDTH, 0.0, batch_first=True, norm_first=True)
    model = block.to("neuron")
    x = torch.randn(8, ROWS // 8, WIDTH).to("neuron")
    assert kept(torch.compile(model, backend="neuron"), x) <= kept(model, x)


def backward_calls(monkeypatch: pytest.MonkeyPatch, function: object, *inputs: Tensor) -> list[str]:
    """Return the operators of the backward graph of ``function``."""
    graphs: list[fx.GraphModule] = []
    partition = aot.min_cut_rematerialization_partition

    def watched(*arguments: object, **options: object) -> tuple[fx.GraphModule, fx.GraphModule]:
        both = partition(*arguments, **options)
        graphs.append(both[1])
        return both

    monkeypatch.setattr(aot, "min_cut_rematerialization_partition", watched)
    torch.compile(function, backend="neuron", fullgraph=True)(*inputs).sum().backward()
    return [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("costly", "function"),
    [
        ("sort", lambda x: x.sin().sort(dim=-1).values.cos()),
        ("cumsum", lambda x: x.sin().cumsum(-1).cos()),
        ("mm", lambda x: (x.sin() @ x.cos()).cos()),
        ("uniform", lambda x: nn.functional.dropout(x.sin(), 0.5).cos()),
    ],
)
def test_costly_results_are_kept(costly: str, function: object, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(8, 8).to("neuron").requires_grad_()
    calls = backward_calls(monkeypatch, function, x)
    assert any("sin" in call or "cos" in call for call in calls)
    own = {"mm": 2}.get(costly, 0)  # its own derivative consists of products
    assert sum(f".{costly}." in call for call in calls) <= own
    assert x.grad is not None


def test_what_an_operator_of_the_users_gives_is_kept() -> None:
    """Nobody knows what it costs, nor whether it talks to other ranks; what checkpointing has marked stays marked."""

    @torch.library.custom_op("recomputation_test::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    graph = fx.Graph()
    value = graph.placeholder("x")
    own = graph.call_function(torch.ops.recomputation_test.twice.default, (value,))
    cheap = graph.call_function(torch.ops.aten.sin.default, (own,))
    asked = graph.call_function(torch.ops.aten.mm.default, (cheap, cheap))
    asked.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
    keep_costly(graph)
    assert [node.meta.get("recompute") for node in (own, cheap, asked)] == [
        CheckpointPolicy.MUST_SAVE,
        None,
        CheckpointPolicy.PREFER_RECOMPUTE,
    ]


def test_nothing_is_computed_again_of_an_argument_that_was_written_into() -> None:
    def function(x: Tensor, number: Tensor) -> Tensor:
        result = torch.atan2(x, number.abs() + 1)
        number.add_(5)
        return result

    expected, given = torch.ones(2, requires_grad=True), torch.ones(2, device="neuron", requires_grad=True)
    function(expected, torch.tensor(-3)).sum().backward()
    torch.compile(function, backend="neuron", fullgraph=True)(given, torch.tensor(-3).to("neuron")).sum().backward()
    assert given.grad is not None
    torch.testing.assert_close(given.grad.cpu(), expected.grad)


@pytest.mark.parametrize("shape", [(4, 4), (2, 8), (16,)], ids=str)
def test_the_gradient_of_an_extreme_finds_it(shape: tuple[int, ...]) -> None:
    """What the extreme was taken of is computed again, perhaps with another last digit; which element it was is not."""

    def function(x: Tensor) -> Tensor:
        return torch.outer(torch.cos(x), x).reshape(shape).amin()

    x = torch.randn(4, generator=torch.Generator().manual_seed(2)).requires_grad_()
    given = x.detach().to("neuron").requires_grad_()
    function(x).backward()
    torch.compile(function, backend="neuron", fullgraph=True)(given).backward()
    assert given.grad is not None
    torch.testing.assert_close(given.grad.cpu(), x.grad)


def test_what_is_compared_is_kept_behind_its_views() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    cosine = graph.call_function(torch.ops.aten.cos.default, (x,))
    shown = graph.call_function(torch.ops.aten.view.default, (cosine, [2, 2]))
    compared = graph.call_function(torch.ops.aten.eq.Tensor, (shown, x))
    for node in (x, cosine, shown):
        node.meta["val"] = torch.empty(2, 2)
    graph.output(compared)
    keep_costly(graph)
    assert cosine.meta["recompute"] is CheckpointPolicy.MUST_SAVE
    assert "recompute" not in shown.meta
