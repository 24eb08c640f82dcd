"""Kernels in place of operators: when they run, eager and compiled, and who wins."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from torch_neuronx import metrics, plugins
from torch_neuronx.errors import PluginError
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.kernels import KernelOffer
from torch_neuronx_nki import offers


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("DEBUG_DIR", "NEFF_CACHE_DIR", "HLO_CACHE_DIR", "NEFF_LOCAL_CACHE_DIR"):
        monkeypatch.setenv(f"TORCH_NEURONX_{name}", str(tmp_path / name))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    metrics.clear_all()
    yield
    torch._dynamo.reset()


def runs(kernel: str) -> int:
    return metrics.get_counter_value(f"Kernels.Simulated.{kernel}") or 0


def ways() -> list[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    return [lambda function: function, lambda function: torch.compile(function, backend="neuron", fullgraph=True)]


@pytest.mark.parametrize("way", ways(), ids=["eager", "compiled"])
class TestAttention:
    def test_runs_forward_and_backward_as_pytorch_does(self, way: Any) -> None:
        given = [torch.randn(1, 2, 2048, 16), *(torch.randn(1, 1, 128, 16) for _ in range(2))]
        host = [tensor.requires_grad_() for tensor in given]
        device = [tensor.detach().to("neuron").requires_grad_() for tensor in given]

        def program(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(query.sin(), key, value, is_causal=True, enable_gqa=True)

        expected, actual = program(*host), way(program)(*device)
        torch.testing.assert_close(actual.cpu(), expected)
        wanted = torch.autograd.grad(expected.square().sum(), host)
        found = torch.autograd.grad(actual.square().sum(), device)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)
        assert (runs("attention_forward"), runs("attention_backward")) == (1, 1)

    @pytest.mark.parametrize(
        ("queries", "enabled", "launches"), [(2048, "1", 1), (2048, "0", 0), (1024, "1", 0), (2176, "1", 0)]
    )
    def test_runs_exactly_where_it_serves_and_may(
        self, way: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, queries: int, enabled: str, launches: int
    ) -> None:
        monkeypatch.setenv("TORCH_NEURONX_ENABLE_NKI_SDPA", enabled)
        monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
        monkeypatch.setenv("TORCH_NEURONX_EMULATOR_FAST_KERNELS", "1")
        query, key = torch.randn(1, 1, queries, 8, device="neuron"), torch.randn(1, 1, 128, 8, device="neuron")
        result = way(lambda query, key: F.scaled_dot_product_attention(query, key, key))(query, key)
        expected = F.scaled_dot_product_attention(query.cpu(), key.cpu(), key.cpu())
        torch.testing.assert_close(result.cpu(), expected)
        assert (metrics.get_counter_value("Kernels.Replaced.attention_forward") or 0) == launches
        for program in tmp_path.rglob("*stablehlo*.mlir"):
            assert program.read_text().count("@AwsNeuronCustomNativeKernel(") == launches

    def test_in_inference_mode(self, way: Any) -> None:
        query, key = torch.randn(1, 1, 2048, 8, device="neuron"), torch.randn(1, 1, 128, 8, device="neuron")
        with torch.inference_mode():
            result = way(lambda query, key: F.scaled_dot_product_attention(query, key, key))(query, key)
        torch.testing.assert_close(result.cpu(), F.scaled_dot_product_attention(query.cpu(), key.cpu(), key.cpu()))
        assert runs("attention_forward") == 1

    def test_under_autocast_in_bfloat16(self, way: Any) -> None:
        query, key = torch.randn(1, 1, 2048, 8, device="neuron"), torch.randn(1, 1, 128, 8, device="neuron")

        def program(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            with torch.autocast("neuron", torch.bfloat16):
                return F.scaled_dot_product_attention(query, key, key)

        result = way(program)(query, key)
        assert result.dtype is torch.bfloat16
        expected = F.scaled_dot_product_attention(query.cpu(), key.cpu(), key.cpu())
        torch.testing.assert_close(result.float().cpu(), expected, rtol=2e-2, atol=2e-2)
        assert runs("attention_forward") == 1


def test_rms_norm_serves_the_fused_operator_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = (torch.randn(*shape, device="neuron", requires_grad=True) for shape in ((3, 5, 64), (64,)))
    monkeypatch.setenv("TORCH_NEURONX_ENABLE_NKI_RMS_NORM", "1")
    out, roots = torch.ops.aten._fused_rms_norm(x, [64], weight, 1e-5)
    assert roots.shape == (3, 5, 1)
    monkeypatch.setenv("TORCH_NEURONX_ENABLE_NKI_RMS_NORM", "0")
    expected = F.rms_norm(x, (64,), weight, 1e-5)
    torch.testing.assert_close(out, expected)
    wanted = torch.autograd.grad(expected.square().sum(), (x, weight))
    found = torch.autograd.grad(out.square().sum(), (x, weight))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert (runs("rms_norm_forward"), runs("rms_norm_backward")) == (1, 1)


class TestChoosing:
    @pytest.fixture
    def offer(self) -> Iterator[Callable[..., None]]:
        names: list[str] = []

        def add(*given: KernelOffer) -> None:
            class Plugin:
                @hookimpl
                def torch_neuronx_register_kernels(self) -> list[KernelOffer]:
                    return list(given)

            names.append(f"offering-{len(names)}")
            plugins.manager().register(Plugin(), names[-1])
            offers.install()

        yield add
        for name in names:
            plugins.manager().unregister(name)

    def test_the_highest_priority_that_serves_wins(self, offer: Callable[..., None]) -> None:
        def made(name: str, number: float, least: int, priority: int) -> KernelOffer:
            return KernelOffer(
                name,
                "aten::pairwise_distance",
                lambda x1, *rest: torch.full_like(x1, number),
                lambda x1, *rest: x1.numel() >= least,
                priority,
            )

        offer(made("first", 1.0, 2, 0), made("second", 2.0, 4, 5), made("third", 3.0, 2, 0))
        for size, expected in ((4, 2.0), (3, 1.0)):
            x = torch.zeros(size, device="neuron")
            assert F.pairwise_distance(x, x).tolist() == [expected] * size
        x = torch.ones(1, device="neuron", requires_grad=True)
        distance = F.pairwise_distance(x, torch.zeros_like(x))
        torch.testing.assert_close(distance, F.pairwise_distance(x.cpu(), torch.zeros(1)).to("neuron"))
        distance.backward()
        assert x.grad is not None
        assert F.pairwise_distance(torch.zeros(4), torch.ones(4)).item() == pytest.approx(2.0, abs=1e-4)

    @pytest.mark.parametrize(
        ("op", "says"),
        [("aten::no_such_operator", "no such operator"), ("aten::mm", "does not define by other operators")],
    )
    def test_what_cannot_be_offered_for(self, offer: Callable[..., None], op: str, says: str) -> None:
        with pytest.raises(PluginError, match=says):
            offer(KernelOffer("wrong", op, lambda *_: None, lambda *_: True))


def test_dynamo_does_not_look_into_what_runs_between_two_graphs() -> None:
    """A kernel in Python may run in a function that Dynamo gave up: there it would trace how offers are asked."""

    def call(x: torch.Tensor) -> torch.Tensor:
        for _ in range(1):  # a break in a loop: the whole function runs in eager mode
            torch._dynamo.graph_break()
            x = F.rms_norm(x, (3,))
        return x

    x = torch.randn(1, 3)
    result = torch.compile(call, backend="neuron")(x.to("neuron"))
    torch.testing.assert_close(result.cpu(), call(x))
    seen = [code() for code in torch._dynamo.convert_frame.input_codes.seen]
    assert not [code.co_qualname for code in seen if code is not None and code.co_filename == offers.__file__]
