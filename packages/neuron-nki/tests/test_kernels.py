"""The kernels of this package, simulated and by their torch equivalents, against PyTorch."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from torch_neuronx import metrics
from torch_neuronx_nki.kernels import attention, rms_norm
from torch_neuronx_nki.kernels.attention import attention_backward, attention_forward
from torch_neuronx_nki.kernels.rms_norm import rms_norm_backward, rms_norm_forward

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
WAYS = ["simulated", "torch"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    fast = request.param == "torch"
    monkeypatch.setenv("TORCH_NEURONX_EMULATOR_FAST_KERNELS", str(int(fast)))
    metrics.clear_all()
    yield request.param
    assert metrics.get_counter_value("Kernels.Simulated" if fast else "Kernels.Replaced") is None
    assert metrics.get_counter_value("Kernels.Replaced" if fast else "Kernels.Simulated")


def close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(actual.float(), expected.float(), rtol=tolerance, atol=tolerance)


class TestAttention:
    @pytest.mark.parametrize(
        ("heads", "kv_heads", "queries", "keys", "depth", "causal", "dtype"),
        [
            (2, 1, 128, 384, 32, False, torch.float32),
            (2, 2, 256, 256, 64, True, torch.float32),
            (1, 1, 256, 128, 16, True, torch.bfloat16),
            (1, 1, 128, 256, 16, True, torch.float16),
            (1, 1, 128, 128, 192, False, torch.bfloat16),
            (4, 2, 128, 128, 256, True, torch.float32),
            (1, 1, 128, 2304, 8, False, torch.float32),
        ],
        ids=["grouped", "causal", "fewer-keys", "fewer-queries", "wide-heads", "widest-heads", "several-blocks"],
    )
    def test_values_and_gradients(
        self,
        way: str,
        heads: int,
        kv_heads: int,
        queries: int,
        keys: int,
        depth: int,
        causal: bool,
        dtype: torch.dtype,
    ) -> None:
        torch.manual_seed(0)
        query = torch.randn(heads, queries, depth, dtype=dtype)
        key, value = (torch.randn(kv_heads, keys, depth, dtype=dtype) for _ in range(2))
        grad = torch.randn(heads, queries, depth, dtype=dtype)
        scale = 0.7 * depth**-0.5
        wide = [tensor.float().requires_grad_() for tensor in (query, key, value)]
        shared = [tensor.repeat_interleave(heads // kv_heads, 0) for tensor in wide[1:]]
        expected = F.scaled_dot_product_attention(wide[0], *shared, is_causal=causal, scale=scale)
        gradients = torch.autograd.grad(expected, wide, grad.float())

        out, sums = attention_forward(query, key, value, scale, causal)
        close(out, expected, dtype)
        assert sums.shape == (heads, queries, 1)
        found = attention_backward(grad, query, key, value, out, sums, scale, causal)
        for actual, wanted in zip(found, gradients, strict=True):
            assert actual.dtype is dtype
            close(actual, wanted, dtype)

    def test_large_scores_and_those_that_keep_growing_stay_finite(self, way: str) -> None:
        query, key = torch.full((1, 128, 8), 30.0), torch.arange(2304.0)[None, :, None].expand(1, 2304, 8).contiguous()
        value = torch.randn(1, 2304, 8)
        out, _ = attention_forward(query, key / 10, value, 1.0, False)
        close(out, value[:, -1:].expand(1, 128, 8), torch.float32)

    @pytest.mark.parametrize(
        ("change", "served"),
        [
            ({}, True),
            ({"queries": 4096}, True),
            ({"queries": 2176}, False),
            ({"queries": 1024}, False),
            ({"queries": 0}, False),
            ({"keys": 128}, True),
            ({"keys": 100}, False),
            ({"keys": 65536}, False),
            ({"depth": 256}, True),
            ({"depth": 257}, False),
            ({"dtype": torch.float64}, False),
            ({"attn_mask": torch.ones(1, dtype=torch.bool)}, False),
            ({"dropout_p": 0.1}, False),
            ({"is_causal": True}, True),
            ({"scale": -1.0}, False),
            ({"kv_heads": 2}, False),
            ({"kv_heads": 2, "enable_gqa": True}, True),
            ({"kv_heads": 3, "enable_gqa": True}, False),
        ],
        ids=str,
    )
    def test_which_calls_it_serves(self, change: dict[str, Any], served: bool) -> None:
        sizes = {"queries": 2048, "keys": 2048, "depth": 64, "kv_heads": 4, "dtype": torch.bfloat16}
        sizes |= {name: change[name] for name in sizes.keys() & change.keys()}
        others = {name: value for name, value in change.items() if name not in sizes}
        make = {"device": "meta", "dtype": sizes["dtype"]}
        query = torch.empty(1, 4, sizes["queries"], sizes["depth"], **make)
        key = torch.empty(1, sizes["kv_heads"], sizes["keys"], sizes["depth"], **make)
        assert attention.serves(query, key, key, **others) is served


class TestRmsNorm:
    @pytest.mark.parametrize(
        ("rows", "columns", "dtype"),
        [(1, 8, torch.float32), (128, 600, torch.float32), (300, 64, torch.bfloat16), (130, 4096, torch.float16)],
    )
    def test_values_and_gradients(self, way: str, rows: int, columns: int, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        x, grad = torch.randn(2, rows, columns).to(dtype)
        weight = torch.randn(1, columns).to(dtype)
        wide = [tensor.float().requires_grad_() for tensor in (x, weight)]
        expected = F.rms_norm(wide[0], (columns,), wide[1][0], eps=1e-3)
        d_x, d_weight = torch.autograd.grad(expected, wide, grad.float())
        out, roots = rms_norm_forward(x, weight, 1e-3)
        close(out, expected, dtype)
        torch.testing.assert_close(roots, torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-3))
        found = rms_norm_backward(grad, x, weight, roots)
        close(found[0], d_x, dtype)
        torch.testing.assert_close(found[1], d_weight, rtol=1e-4, atol=1e-3)

    @pytest.mark.parametrize(
        ("shape", "normalized", "weight", "served"),
        [
            ((2, 3, 64), [64], torch.float32, True),
            ((64,), [64], None, True),
            ((2, 64), [2, 64], None, False),
            ((2, 8192), [8192], None, False),
            ((0, 64), [64], None, False),
            ((2, 64), [64], torch.bfloat16, False),
        ],
    )
    def test_which_calls_it_serves(
        self, shape: tuple[int, ...], normalized: list[int], weight: torch.dtype | None, served: bool
    ) -> None:
        given = None if weight is None else torch.empty(normalized, dtype=weight, device="meta")
        assert rms_norm.serves(torch.empty(shape, device="meta"), normalized, given) is served
