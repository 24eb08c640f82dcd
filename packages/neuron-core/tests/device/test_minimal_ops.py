"""What every backend brings itself: memory, views, storages, copies, single values."""

import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = [
    torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty(dtype: torch.dtype) -> None:
    tensor = torch.empty(2, 3, dtype=dtype, device="neuron")
    assert tensor.dtype == dtype
    assert tensor.shape == (2, 3)
    assert tensor.is_contiguous()
    assert tensor.untyped_storage().nbytes() == 6 * dtype.itemsize
    assert torch.empty_strided((2, 3), (1, 2), dtype=dtype, device="neuron").stride() == (1, 2)


def test_empty_keeps_to_memory_formats_and_edges() -> None:
    image = torch.empty(2, 3, 4, 5, memory_format=torch.channels_last, device="neuron")
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert torch.empty_like(image).stride() == image.stride()
    assert torch.empty(0, 3, device="neuron").numel() == 0
    assert torch.empty((), device="neuron").dim() == 0
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch.empty(-1, device="neuron")
    with pytest.raises(TypeError):
        torch.empty(2, dtype="float32", device="neuron")


def test_views_share_memory() -> None:
    x = torch.arange(24.0, device="neuron").reshape(2, 3, 4)
    c = torch.arange(24.0).reshape(2, 3, 4)
    views = [
        lambda t: t.view(4, 6), lambda t: t.transpose(0, 2), lambda t: t.permute(2, 0, 1),
        lambda t: t[1], lambda t: t[:, 1:, ::2], lambda t: t.select(2, 3), lambda t: t.unsqueeze(1).squeeze(),
        lambda t: t.as_strided((3, 2), (1, 5), 2), lambda t: t.unfold(2, 2, 1), lambda t: t.diagonal(0, 1, 2),
        lambda t: t[:1].expand(5, 3, 4), lambda t: t.flatten(), lambda t: t.narrow(1, 0, 2), lambda t: t.movedim(0, 2),
        lambda t: t.view(torch.int32), lambda t: t.detach(), lambda t: t.split(2, dim=1)[1], lambda t: t.unbind(1)[2],
    ]  # fmt: skip
    for view in views:
        on_device, on_cpu = view(x), view(c)
        assert on_device.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert on_device._is_view() == on_cpu._is_view()
        assert on_device.stride() == on_cpu.stride()
        assert on_device.storage_offset() == on_cpu.storage_offset()
        assert torch.equal(on_device.cpu(), on_cpu)
    x[0].view(-1)[5] = -1
    assert x[0, 1, 1].item() == -1
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.transpose(0, 1).view(-1)
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.as_strided((100,), (1,))


@given(
    shape=st.lists(st.integers(0, 6), max_size=4).map(tuple),
    new=st.lists(st.integers(0, 6), max_size=4).map(tuple),
)
@settings(max_examples=100, deadline=None)
def test_resize_does_what_the_cpu_s_does(shape: tuple[int, ...], new: tuple[int, ...]) -> None:
    source = torch.randn(shape)
    on_cpu, on_device = source.clone().resize_(new), source.to("neuron").resize_(new)
    assert on_device.shape == on_cpu.shape
    assert on_device.stride() == on_cpu.stride()
    assert on_device.untyped_storage().nbytes() >= on_device.nbytes
    kept = min(source.numel(), on_cpu.numel())
    assert torch.equal(on_device.flatten()[:kept].cpu(), source.flatten()[:kept])


def test_resize_of_views_and_formats() -> None:
    base = torch.arange(4.0, device="neuron")
    view = base[1:]
    view.resize_(6)
    assert view[:3].tolist() == [1.0, 2.0, 3.0]
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0]
    image = torch.empty(1, device="neuron").resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert torch.empty(0, device="neuron").resize_as_(image).shape == image.shape


def test_a_failed_resize_changes_nothing(fresh: Any) -> None:
    code = """
    import json, torch
    tensor = torch.ones(16 * 2**20, dtype=torch.uint8, device="neuron")
    view = torch.empty(0, dtype=torch.uint8, device="neuron")
    for grow in (lambda: tensor.resize_(80 * 2**20), lambda: view.set_(tensor.untyped_storage(), 0, (80 * 2**20,))):
        try:
            grow()
        except torch.OutOfMemoryError:
            pass
    print(json.dumps([tensor.numel(), view.numel(), tensor.untyped_storage().nbytes()]))
    """
    assert fresh(code, TORCH_NEURONX_EMULATOR_HBM_BYTES="64MiB").answer == [16 * 2**20, 0, 16 * 2**20]


def test_set() -> None:
    x = torch.arange(12.0, device="neuron")
    shared = torch.empty(0, device="neuron").set_(x.view(3, 4).t())
    assert shared.stride() == (1, 4)
    shared[0, 0] = 5
    assert x[0].item() == 5
    assert torch.equal(torch.empty(0, device="neuron").set_(x.untyped_storage()), x)
    part = torch.empty(0, device="neuron").set_(x.untyped_storage(), 2, (2, 2), (4, 1))
    assert part.tolist() == [[2.0, 3.0], [6.0, 7.0]]
    assert torch.empty(0, device="neuron").set_(x.untyped_storage(), 0, (20,)).shape == (20,)
    assert x.untyped_storage().nbytes() >= 80
    gone = torch.ones(3, device="neuron")
    gone.set_()
    assert gone.shape == (0,)
    assert gone.is_neuron
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"))
    parameter.data = torch.zeros(3, device="neuron")
    assert parameter.shape == (3,)


@pytest.mark.parametrize(("device", "source"), [("neuron", "cpu"), ("cpu", "neuron"), ("neuron:0", "neuron:1")])
def test_set_keeps_to_the_device(device: str, source: str) -> None:
    with pytest.raises(RuntimeError, match="devices must match"):
        torch.empty(0, device=device).set_(torch.ones(3, device=source))


# ---- copies ----------------------------------------------------------------------------------------------------------

LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.t(),
    "strided": lambda t: t[::2, 1::3],
    "offset": lambda t: t[3:],
    "expanded": lambda t: t[:1].expand(4, -1),
    "empty": lambda t: t[:0],
    "single": lambda t: t[1, 1],
}
PATHS = [("cpu", "neuron"), ("neuron", "cpu"), ("neuron:0", "neuron:2"), ("neuron", "neuron")]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(("source", "target"), PATHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16], ids=str)
def test_copies(source: str, target: str, layout: Any, dtype: torch.dtype) -> None:
    whole = torch.randint(0, 3, (6, 9)).to(dtype)
    expected = layout(whole)
    start = layout(whole.to(source))
    for non_blocking in (False, True):
        arrived = start.to(target, non_blocking=non_blocking, copy=True)
        torch.neuron.synchronize()
        assert arrived.device == torch.empty(0, device=target).device
        assert torch.equal(arrived.cpu(), expected)
        into = torch.zeros(expected.shape[::-1], dtype=dtype, device=target).permute(tuple(range(expected.dim()))[::-1])
        into.copy_(start, non_blocking=non_blocking)
        assert torch.equal(into.cpu(), expected)


@pytest.mark.parametrize(("source", "target"), PATHS)
@pytest.mark.parametrize("start", DTYPES, ids=str)
@pytest.mark.parametrize("end", [torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.complex64], ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real:UserWarning")
def test_copies_change_dtypes(source: str, target: str, start: torch.dtype, end: torch.dtype) -> None:
    values = torch.tensor([0.0, 1.0, 2.0, 7.0]).to(start)
    expected = values.to(end)
    there = values.to(source)
    assert torch.equal(there.to(target, end).cpu(), expected)
    assert torch.equal(torch.empty(4, dtype=end, device=target).copy_(there).cpu(), expected)


@pytest.mark.parametrize(("source", "target"), PATHS)
def test_copies_resolve_conjugates_and_negatives(source: str, target: str) -> None:
    values = torch.randn(4, 3, dtype=torch.complex64)
    there = values.to(source)
    lazies = [
        (there.conj(), values.conj()), (there.conj().t(), values.conj().t()), (torch._neg_view(there), -values),
        (there.conj().imag, values.conj().imag), (torch._neg_view(there.conj()), -values.conj()),
    ]  # fmt: skip
    for lazy, expected in lazies:
        assert torch.equal(lazy.to(target).cpu(), expected)
        assert torch.equal(torch.empty_like(expected.resolve_conj(), device=target).copy_(lazy).cpu(), expected)
    into = torch.zeros(4, 3, dtype=torch.complex64, device=target)
    into.conj().copy_(there)
    assert torch.equal(into.cpu(), values.conj())


def test_copies_broadcast_and_check_shapes() -> None:
    target = torch.zeros(2, 3, 4, device="neuron")
    target.copy_(torch.arange(4.0))
    assert torch.equal(target.cpu(), torch.arange(4.0).expand(2, 3, 4))
    with pytest.raises(RuntimeError, match=r"size of tensor a \(4\) must match the size of tensor b \(5\)"):
        target.copy_(torch.ones(5))


def test_a_copy_to_where_it_is_is_the_same_tensor() -> None:
    x = torch.ones(3, device="neuron")
    assert x.to("neuron") is x
    assert x.to("neuron:0") is x
    assert x.neuron() is x
    assert x.to("neuron", copy=True) is not x
    assert torch.ones(1).cpu().device.type == "cpu"


def test_gradients_cross_devices() -> None:
    x = torch.randn(3, requires_grad=True)
    (x.to("neuron").square().to("neuron:1").cpu() * 3).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, 6 * x.detach())


def test_storages_copy() -> None:
    cpu, device = torch.arange(4, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8, device="neuron")
    device.untyped_storage().copy_(cpu.untyped_storage())
    assert device.tolist() == [0, 1, 2, 3]
    cpu.zero_()
    cpu.untyped_storage().copy_(device.untyped_storage())
    assert cpu.tolist() == device.untyped_storage().tolist() == device.untyped_storage().cpu().tolist() == [0, 1, 2, 3]
    assert device.untyped_storage().clone().device == device.device
    device.untyped_storage().fill_(7)
    assert device.tolist() == [7] * 4
    assert device.untyped_storage()[1] == 7


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_single_values(dtype: torch.dtype) -> None:
    value = torch.ones(3, device="neuron").to(dtype)[1]
    assert value.item() == 1
    assert value.tolist() == 1
    assert bool(value)
    assert value.cpu().item() == 1


def test_python_takes_values() -> None:
    x = torch.tensor([1.5, -2.0], device="neuron")
    assert float(x[0]) == 1.5
    assert int(x[1]) == -2
    assert [1, 2, 3][torch.tensor(1, device="neuron")] == 2
    assert list(map(float, x)) == [1.5, -2.0]
    assert x.numpy(force=True).tolist() == [1.5, -2.0]
    assert len(x) == 2
    assert 1.5 in x
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        x.item()
    with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        x.numpy()


def test_data_becomes_a_tensor() -> None:
    assert torch.tensor([[1, 2], [3, 4]], device="neuron").tolist() == [[1, 2], [3, 4]]
    assert torch.as_tensor([1.0], device="neuron").is_neuron
    assert torch.from_numpy(torch.arange(3).numpy()).to("neuron").tolist() == [0, 1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.tensor(torch.ones(2), device="neuron").is_neuron
    assert torch.empty(1, device="neuron").new_tensor([3]).is_neuron
    assert torch.empty(1, device="neuron").new_zeros(2).tolist() == [0.0, 0.0]
