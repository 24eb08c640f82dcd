"""Native, fallback, unsupported: what each status does, for operators of each kind of argument."""

import logging
import subprocess
import sys

import pytest
import torch

import torch_neuronx
from torch_neuronx.errors import UnsupportedDtypeError, UnsupportedOperatorError
from torch_neuronx.op_status import OpStatus
from torch_neuronx.ops.statuses import current_table


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("aten::eye", OpStatus.NATIVE),
        ("aten::add.Tensor", OpStatus.NATIVE),
        ("aten::sort", OpStatus.NATIVE),
        ("aten::complex", OpStatus.FALLBACK),
        ("aten::quantize_per_tensor", OpStatus.UNSUPPORTED),
    ],
)
def test_known_rows_of_the_table(name: str, status: OpStatus) -> None:
    assert current_table()[name].status == status


def test_an_unsupported_operator_says_how_to_relax_the_rule() -> None:
    x = torch.ones(2, device="neuron")
    with pytest.raises(UnsupportedOperatorError, match="TORCH_NEURONX_EMULATOR_RELAXED=1"):
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    with pytest.raises(NotImplementedError, match="quantized"):
        torch.quantize_per_channel(x, torch.ones(2), torch.zeros(2), 0, torch.qint8)


def test_an_unknown_dtype_is_refused_by_name() -> None:
    with pytest.raises((UnsupportedDtypeError, UnsupportedOperatorError), match="quantized"):
        torch.empty(2, dtype=torch.qint8, device="neuron")


def test_a_fallback_is_logged_once_and_counted_each_time() -> None:
    script = """
import torch, torch_neuronx
a = torch.ones(2, device="neuron")
torch_neuronx.clear_op_tracking()
for _ in range(3):
    torch.complex(a, a)
assert torch_neuronx.get_fallback_ops() == ["aten::complex"] * 3
torch_neuronx.metrics.set_enabled(True)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=120, capture_output=True, text=True)
    assert done.stderr.count("aten::complex") == 1


def test_tracking_lists_each_call_in_order() -> None:
    x = torch.ones(2, device="neuron")
    torch_neuronx.clear_op_tracking()
    (x + x).sin()
    x + x
    assert torch_neuronx.get_executed_ops() == ["aten::add", "aten::sin", "aten::add"]
    assert torch_neuronx.get_fallback_ops() == []
    torch_neuronx.ops.tracking.stop_op_tracking()
    x + x
    assert len(torch_neuronx.get_executed_ops()) == 3


def test_fallbacks_of_every_argument_kind_equal_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    x = torch.randn(6, 6)

    def run(t: torch.Tensor) -> list[torch.Tensor]:
        out = torch.empty(0, device=t.device)
        torch.linalg.inv(t + 6 * torch.eye(6, device=t.device), out=out)  # out=, resized by the kernel
        lists = torch._foreach_add([t, t * 2], [t, t])
        torch._foreach_mul_(lists, 2.0)
        picked = t[[0, 2], None, 1:3]  # optional tensor list
        put = t.clone().index_put_((torch.tensor([0, 1], device=t.device),), torch.zeros(6, device=t.device))
        q, r = torch.linalg.qr(t)
        return [out, *lists, picked, put, q @ r, *torch.frexp(t), t.view(36).kthvalue(3).values]

    for on_device, on_cpu in zip(run(x.to("neuron")), run(x), strict=True):
        assert on_device.device.type == "neuron"
        torch.testing.assert_close(on_device.cpu(), on_cpu)


def test_a_mixture_of_devices_is_refused_by_name() -> None:
    x = torch.ones(3, device="neuron")
    for call in (
        lambda: x + torch.ones(3),
        lambda: torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3, device="neuron")),
        lambda: torch.cat([x, torch.ones(3)]),
        lambda: torch.linalg.solve(torch.eye(3, device="neuron"), torch.ones(3)),
        lambda: x.add_(torch.ones(3)),
    ):
        with pytest.raises(RuntimeError, match=r"is on cpu device, expected neuron:0"):
            call()


def test_a_cpu_scalar_may_take_part() -> None:
    x = torch.ones(3, device="neuron")
    assert torch.equal((x + torch.tensor(2.0)).cpu(), torch.full((3,), 3.0))
    assert torch.equal(x[torch.tensor([0, 2])].cpu(), torch.ones(2))  # indices may stay on the CPU, as with CUDA


def test_two_cores_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="neuron:0 and neuron:1"):
        torch.ones(2, device="neuron:0") + torch.ones(2, device="neuron:1")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:Sparse invariant checks")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
def test_sparse_tensors_are_computed_on_the_host(layout: torch.layout) -> None:
    dense = torch.randn(6, 5) * (torch.rand(6, 5) > 0.5)
    other = torch.randn(5, 3)
    sparse = dense.to("neuron").to_sparse(layout=layout)
    assert sparse.device.type == "neuron"
    assert sparse.layout == layout
    assert sparse.values().device.type == "neuron"
    torch.testing.assert_close(sparse.to_dense().cpu(), dense)
    torch.testing.assert_close(sparse.cpu().to_dense(), dense)
    torch.testing.assert_close((sparse @ other.to("neuron")).cpu(), dense @ other)
    assert "aten::_to_sparse" in "".join(torch_neuronx.get_fallback_ops())


def test_sparse_results_own_their_memory() -> None:
    made = torch.eye(4, device="neuron").to_sparse()
    doubled = made * 2
    del made
    torch.ones(1000, device="neuron")  # would land in the freed blocks
    torch.testing.assert_close(doubled.to_dense().cpu(), 2 * torch.eye(4))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func's own
def test_functional_transforms_and_distributions_work() -> None:
    x = torch.linspace(0.1, 1, 5)
    on_device = x.to("neuron")
    torch.testing.assert_close(torch.func.vmap(torch.sin)(on_device).cpu(), x.sin())
    torch.testing.assert_close(torch.func.hessian(lambda t: (t**3).sum())(on_device).cpu(), torch.diag(6 * x))
    drawn = torch.distributions.Normal(on_device, 1.0).rsample((2,))
    assert drawn.shape == (2, 5)
    assert drawn.device.type == "neuron"


def test_fallbacks_show_in_the_metrics() -> None:
    x = torch.ones(2, device="neuron")
    before = torch_neuronx.metrics.get_counter_value("Fallback.aten::complex") or 0
    for _ in range(4):
        torch.complex(x, x)
    assert (torch_neuronx.metrics.get_counter_value("Fallback.aten::complex") or 0) - before == 4
