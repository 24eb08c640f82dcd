"""Mixed precision: CUDA's operator conventions, and the loss scaler."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch.nn import functional as F

HALVES = [torch.bfloat16, torch.float16]


def f32(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, device="neuron") + 0.1


LOWERED = {
    "mm": lambda: f32(2, 2) @ f32(2, 2),
    "linear": lambda: F.linear(f32(2, 3), f32(4, 3), f32(4)),
    "bmm": lambda: torch.bmm(f32(2, 2, 2), f32(2, 2, 2)),
    "addmm": lambda: torch.addmm(f32(2, 2), f32(2, 2), f32(2, 2)),
    "conv": lambda: F.conv2d(f32(1, 1, 4, 4), f32(1, 1, 2, 2)),
    "conv transpose": lambda: F.conv_transpose1d(f32(1, 1, 4), f32(1, 1, 2)),
    "einsum": lambda: torch.einsum("ij,jk", f32(2, 2), f32(2, 2)),
    "prelu": lambda: F.prelu(f32(3), f32(1)),
    "attention": lambda: F.scaled_dot_product_attention(f32(1, 1, 3, 4), f32(1, 1, 3, 4), f32(1, 1, 3, 4)),
    "baddbmm": lambda: torch.baddbmm(f32(1, 2, 2), f32(1, 2, 2), f32(1, 2, 2)),
}
KEPT_FLOAT32 = {
    "softmax": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "exp": torch.exp,
    "log": torch.log,
    "pow": lambda x: x.pow(2),
    "sum": torch.sum,
    "prod": torch.prod,
    "cumsum": lambda x: x.cumsum(0),
    "norm": torch.norm,
    "rsqrt": torch.rsqrt,
    "layer_norm": lambda x: F.layer_norm(x, x.shape),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "cross_entropy": lambda x: F.cross_entropy(x.view(1, -1), torch.zeros(1, dtype=torch.int64, device="neuron")),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x, 0),
    "softplus": F.softplus,
}
FOLLOWING = {
    "relu": torch.relu,
    "mul": lambda x: x * 2,
    "max": torch.max,
    "view": lambda x: x.view(-1),
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", LOWERED)
def test_matrix_products_run_in_lower_precision(name: str, dtype: torch.dtype) -> None:
    with torch.autocast("neuron", dtype=dtype):
        assert LOWERED[name]().dtype == dtype
    assert LOWERED[name]().dtype == torch.float32


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", KEPT_FLOAT32)
def test_what_needs_range_runs_in_float32(name: str, dtype: torch.dtype) -> None:
    x = f32(4).to(dtype)
    with torch.autocast("neuron", dtype=dtype):
        assert KEPT_FLOAT32[name](x).dtype == torch.float32


@pytest.mark.parametrize("name", FOLLOWING)
def test_the_rest_follows_its_input(name: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("neuron", dtype=torch.bfloat16):
            assert FOLLOWING[name](f32(4).to(dtype)).dtype == dtype


@pytest.mark.parametrize("combine", [torch.addcmul, torch.dot, lambda a, b, *_: torch.cat([a, b]), torch.atan2])
def test_mixed_inputs_are_promoted(combine: Any) -> None:
    tensors = [f32(3), f32(3).bfloat16(), f32(3)][: 3 if combine is torch.addcmul else 2]
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert combine(*tensors).dtype == torch.float32


def test_binary_cross_entropy_is_refused() -> None:
    with torch.autocast("neuron"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        F.binary_cross_entropy(f32(3) / 2, f32(3) / 2)
    with torch.autocast("neuron"):
        assert F.binary_cross_entropy_with_logits(f32(3), f32(3)).dtype == torch.float32
    with torch.autocast("neuron", enabled=False):
        F.binary_cross_entropy(f32(3) / 2, f32(3) / 2)


def test_settings() -> None:
    assert torch.amp.is_autocast_available("neuron")
    assert not torch.is_autocast_enabled("neuron")
    assert set(torch.neuron.get_amp_supported_dtype()) == set(HALVES)
    assert torch.get_autocast_dtype("neuron") == torch.get_autocast_dtype("cuda") == torch.float16
    for context in (torch.autocast("neuron"), torch.neuron.amp.autocast()):
        with context:
            assert torch.is_autocast_enabled("neuron")
            assert not torch.is_autocast_enabled("cpu")
            assert (f32(2, 2) @ f32(2, 2)).dtype == torch.float16
            with torch.autocast("neuron", enabled=False):
                assert (f32(2, 2) @ f32(2, 2)).dtype == torch.float32
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32, "the CPU is left alone"
    with torch.neuron.amp.autocast(dtype=torch.bfloat16):
        assert (f32(2, 2) @ f32(2, 2)).dtype == torch.bfloat16
    with pytest.warns(UserWarning, match="only supports dtypes"), torch.autocast("neuron", dtype=torch.float32):
        assert (f32(2, 2) @ f32(2, 2)).dtype == torch.float32


def test_it_decorates() -> None:
    @torch.autocast("neuron", dtype=torch.bfloat16)
    def multiply(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    class Own(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="neuron", cast_inputs=torch.float32)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="neuron")
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return grad @ x.t() + x.t() @ grad

    assert multiply(f32(2, 2)).dtype == torch.bfloat16
    x = f32(2, 2).requires_grad_()
    with torch.autocast("neuron", dtype=torch.bfloat16):
        y = Own.apply(x)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad is not None


def test_weights_are_cast_once_per_region() -> None:
    import torch_neuronx

    weight = f32(4, 4).requires_grad_()
    torch_neuronx.clear_op_tracking()
    with torch.autocast("neuron", dtype=torch.bfloat16):
        x = f32(4, 4).bfloat16()
        torch_neuronx.clear_op_tracking()
        for _ in range(3):
            torch.mm(x, weight)
        casts = torch_neuronx.get_executed_ops().count("aten::copy_") + torch_neuronx.get_executed_ops().count(
            "aten::_to_copy"
        )
    assert casts == 1
    torch_neuronx.clear_op_tracking()


def test_training_in_mixed_precision_is_close_to_float32() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))
    x, y = torch.randn(64, 8, device="neuron"), torch.randint(0, 4, (64,), device="neuron")
    losses = []
    for mixed in (False, True):
        copied = copy.deepcopy(model).to("neuron")
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
        for _ in range(10):
            optimizer.zero_grad()
            with torch.autocast("neuron", dtype=torch.bfloat16, enabled=mixed):
                loss = F.cross_entropy(copied(x), y)
            loss.backward()
            assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in copied.parameters())
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


# ---- the loss scaler -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda **k: torch.amp.GradScaler("neuron", **k), lambda **k: torch.neuron.amp.GradScaler(**k)]
)
def test_the_scaler_scales_skips_and_adapts(make: Any) -> None:
    scaler = make(init_scale=8.0, growth_interval=2)
    assert scaler.is_enabled()
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"))
    optimizer = torch.optim.SGD([parameter], lr=0.5)

    def step(factor: float) -> None:
        optimizer.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the scaler's own float64 is no news to its user
        step(1.0)
    assert parameter.tolist() == [0.5, 0.5]
    step(float("inf"))
    assert parameter.tolist() == [0.5, 0.5], "a step with an infinite gradient is left out"
    assert scaler.get_scale() == 4.0
    step(1.0)
    step(1.0)
    assert scaler.get_scale() == 8.0
    assert parameter.tolist() == [-0.5, -0.5]
    restored = make()
    restored.load_state_dict(scaler.state_dict())
    assert restored.get_scale() == 8.0


def test_the_scaler_lets_gradients_be_clipped() -> None:
    scaler = torch.amp.GradScaler("neuron", init_scale=1024.0)
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, fused=True)
    scaler.scale((parameter * torch.tensor([3.0, 4.0], device="neuron")).sum()).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_([parameter], 1.0)
    assert norm.item() == pytest.approx(5.0)
    assert parameter.grad is not None
    assert parameter.grad.norm().item() == pytest.approx(1.0, rel=1e-4)
    scaler.step(optimizer)
    scaler.update()
    assert parameter.lt(1).all()


def test_the_fused_optimizer_skips_too() -> None:
    scaler = torch.amp.GradScaler("neuron", init_scale=4.0)
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, fused=True)
    scaler.scale((parameter * float("nan")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [1.0, 1.0]
    assert scaler.get_scale() == 2.0
