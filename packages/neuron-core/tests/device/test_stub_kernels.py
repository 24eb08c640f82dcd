"""Operators that PyTorch routes through stubs of the backend: attention, and unary functions with `out`."""

import copy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F


@pytest.mark.parametrize(("causal", "masked"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_attention_equals_the_cpu_s(causal: bool, masked: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    leaves = [torch.randn(2, 3, 17, 16, dtype=dtype) for _ in range(3)]
    mask = torch.rand(17, 17).gt(0.3).logical_or(torch.eye(17).bool()) if masked else None
    results = []
    for device in ("cpu", "neuron"):
        q, k, v = (leaf.detach().clone().to(device).requires_grad_() for leaf in leaves)
        attn_mask = None if mask is None else mask.to(device)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=causal)
        out.float().square().sum().backward()
        results.append([out, q.grad, k.grad, v.grad])
    for expected, found in zip(*results, strict=True):
        assert found.is_neuron
        tolerance = {"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(found.cpu(), expected, **tolerance)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 2, 0, 3)], ids=str)
@pytest.mark.parametrize("size", [16, 5], ids=["flash", "composite"])
def test_fake_attention_is_laid_out_as_real_attention(order: tuple[int, ...], size: int) -> None:
    q, k = (torch.randn(3, 3, 3, 16, device="neuron").permute(order) for _ in range(2))
    v = torch.randn(3, 3, 3, size, device="neuron").permute(order)
    real = F.scaled_dot_product_attention(q, k, v)
    with FakeTensorMode() as mode:
        fake = F.scaled_dot_product_attention(*map(mode.from_tensor, (q, k, v)))
    assert (fake.device.type, fake.shape, fake.stride()) == ("neuron", real.shape, real.stride())


def test_traced_attention_has_parts_that_run() -> None:
    """No device has a kernel for the operator that stands for attention where only its metadata is wanted."""
    q, k, v = (torch.randn(2, 3, 5, 8, device="neuron") for _ in range(3))
    traced = make_fx(F.scaled_dot_product_attention, tracing_mode="fake")(q, k, v)
    assert not [node for node in traced.graph.nodes if "attention" in str(node.target)]
    torch.testing.assert_close(traced(q, k, v), F.scaled_dot_product_attention(q, k, v))
    compiled = torch.compile(F.scaled_dot_product_attention, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(q, k, v), F.scaled_dot_product_attention(q, k, v))


def test_attention_layers_equal_the_cpu_s() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 16)
    for mode in (layer.train(), layer.eval()):
        expected = mode.to("cpu")(x)
        found = mode.to("neuron")(x.to("neuron"))
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("name", ["abs", "neg", "sqrt", "exp", "sigmoid", "tanh", "erf", "sign", "floor", "log1p"])
def test_unary_functions_in_every_form(name: str) -> None:
    x = torch.rand(4, 5) + 0.1
    y = x.to("neuron")
    expected = getattr(torch, name)(x)
    out = torch.empty(0, device="neuron")
    for found in (getattr(torch, name)(y), getattr(torch, name)(y, out=out), getattr(y.clone(), name + "_")()):
        assert found.is_neuron
        assert torch.equal(found.cpu(), expected)
    assert out.shape == x.shape
    strided = torch.zeros(5, 4, device="neuron").t()
    getattr(torch, name)(y, out=strided)
    assert torch.equal(strided.cpu(), expected)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_equal_the_cpu_s(kind: str) -> None:
    torch.manual_seed(0)
    nets = [
        getattr(torch.nn, kind)(3, 5, num_layers=2, bidirectional=True),
        getattr(torch.nn, kind)(3, 5, bias=False),
        getattr(torch.nn, kind + "Cell")(3, 5),
    ]
    for net in nets:
        x = torch.randn(4, 3) if "Cell" in type(net).__name__ else torch.randn(7, 4, 3)
        gradients = []
        for device in ("cpu", "neuron"):
            moved = copy.deepcopy(net).to(device)
            leaf = x.detach().clone().to(device).requires_grad_()
            out = moved(leaf)
            while not isinstance(out, torch.Tensor):
                out = out[0]
            out.square().sum().backward()
            gradients.append([out.detach(), leaf.grad, *(parameter.grad for parameter in moved.parameters())])
        for expected, found in zip(*gradients, strict=True):
            assert found.is_neuron
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
