"""Saving, loading, copying, pickling: `torch.save`, `torch.load`, `copy.deepcopy`, state dicts."""

import copy
import io
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

DTYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int64, torch.uint8, torch.bool]


def saved(obj: object, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(obj, buffer, **options)
    return buffer.getvalue()


def loaded(data: bytes, **options: Any) -> Any:
    return torch.load(io.BytesIO(data), **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_comes_back_where_it_was(dtype: torch.dtype) -> None:
    values = torch.ones(4, 3).to(dtype)
    for device in ("neuron:0", "neuron:2"):
        back = loaded(saved(values.to(device)))
        assert back.device == torch.device(device)
        assert back.dtype == dtype
        assert torch.equal(back.cpu(), values)


@pytest.mark.parametrize("new_format", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    ("start", "map_location", "end"),
    [
        ("neuron", "cpu", "cpu"),
        ("neuron", torch.device("cpu"), "cpu"),
        ("cpu", "neuron", "neuron:0"),
        ("cpu", torch.device("neuron:1"), "neuron:1"),
        ("neuron:0", "neuron:3", "neuron:3"),
        ("neuron:1", {"neuron:1": "neuron:2"}, "neuron:2"),
        ("neuron:1", {"neuron:1": "cpu"}, "cpu"),
        ("neuron", lambda storage, location: storage, "cpu"),
        ("cpu", lambda storage, location: storage.neuron(), "neuron:0"),
        ("neuron", "meta", "meta"),
        ("neuron", None, "neuron:0"),
    ],
)
def test_map_location(start: str, map_location: Any, end: str, new_format: bool) -> None:
    data = saved({"x": torch.arange(5.0, device=start)}, _use_new_zipfile_serialization=new_format)
    found = loaded(data, map_location=map_location)["x"]
    assert found.device == torch.device(end)
    if end != "meta":
        assert found.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("map_location", [None, "cpu", "neuron:1"])
def test_files_are_mapped(tmp_path: Path, map_location: str | None) -> None:
    file = tmp_path / "model.pt"
    torch.save({"x": torch.arange(1000.0, device="neuron"), "y": torch.ones(3)}, file)
    found = torch.load(file, mmap=True, map_location=map_location)
    assert torch.equal(found["x"].cpu(), torch.arange(1000.0))
    assert found["x"].device == torch.device(map_location or "neuron:0")
    found["x"].add_(1)
    assert torch.equal(torch.load(file)["x"].cpu(), torch.arange(1000.0)), "the file stays as it is"


def test_views_of_one_storage_stay_together() -> None:
    x = torch.arange(6.0, device="neuron")
    back = loaded(saved([x, x[2:], x.view(2, 3).t()]))
    assert len({part.untyped_storage().data_ptr() for part in back}) == 1
    back[0][2] = 50
    assert back[1][0].item() == 50
    assert back[2].stride() == (1, 3)


def test_a_core_that_is_not_there_is_named() -> None:
    data = saved(torch.ones(1, device="neuron"))
    with pytest.raises(RuntimeError, match=r"NEURON device 9 but torch\.neuron\.device_count\(\) is 4.*map_location"):
        loaded(data, map_location="neuron:9")


def test_parameters_keep_what_they_are() -> None:
    parameter = nn.Parameter(torch.ones(2, device="neuron"))
    back = loaded(saved(parameter))
    assert isinstance(back, nn.Parameter)
    assert back.requires_grad
    assert back.is_neuron
    frozen = loaded(saved(torch.ones(1, device="neuron", requires_grad=True)))
    assert frozen.requires_grad


@pytest.mark.parametrize("make", [lambda t: t.conj(), lambda t: t.conj().imag, lambda t: t.t(), lambda t: t[1:, ::2]])
def test_lazy_and_strided_tensors(make: Any) -> None:
    values = torch.randn(3, 4, dtype=torch.complex64)
    there = make(values.to("neuron"))
    for back in (loaded(saved(there)), copy.deepcopy(there), pickle.loads(pickle.dumps(there))):
        assert back.is_neuron
        assert torch.equal(back.cpu(), make(values))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(OrderedDict(a=nn.Linear(3, 4), b=nn.BatchNorm1d(4), c=nn.Linear(4, 2)))


@pytest.mark.parametrize(("start", "end"), [("cpu", "neuron"), ("neuron", "cpu"), ("neuron:0", "neuron:1")])
def test_a_checkpoint_resumes_on_another_device(start: str, end: str) -> None:
    def step(net: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> float:
        optimizer.zero_grad()
        loss = net(torch.linspace(-1, 1, 15, device=device).view(5, 3)).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    net = model().to(start)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    for _ in range(3):
        step(net, optimizer, start)
    data = saved({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
    expected = [step(net, optimizer, start) for _ in range(3)]

    checkpoint = loaded(data, map_location=end)
    resumed = model().to(end)
    resumed.load_state_dict(checkpoint["net"])
    again = torch.optim.AdamW(resumed.parameters(), lr=0.5)
    again.load_state_dict(checkpoint["optimizer"])
    assert {s["exp_avg"].device for s in again.state.values()} == {torch.empty(0, device=end).device}
    assert [step(resumed, again, end) for _ in range(3)] == pytest.approx(expected, rel=1e-5)


def test_state_dicts_cross_devices_on_loading() -> None:
    net, other = model(), model().to("neuron")
    with torch.no_grad():
        net.a.weight.add_(1)
    other.load_state_dict(net.state_dict())
    assert other.a.weight.is_neuron
    assert torch.equal(other.a.weight.cpu(), net.a.weight)
    net.load_state_dict(other.state_dict())
    other.load_state_dict(net.to("neuron:1").state_dict(), assign=True)
    assert other.a.weight.device.index == 1


def test_whole_modules() -> None:
    net = model().to("neuron").eval()
    x = torch.ones(2, 3, device="neuron")
    for back in (loaded(saved(net), weights_only=False), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(back(x), net(x))
        assert back.a.weight.is_neuron
        assert back.a.weight.data_ptr() != net.a.weight.data_ptr()


def test_deep_copies_keep_ties_and_gradients() -> None:
    leaf = torch.ones(3, device="neuron:1", requires_grad=True)
    leaf.sum().backward()
    twice = copy.deepcopy([leaf, leaf, leaf.detach()])
    assert twice[0] is twice[1]
    assert twice[0].device.index == 1
    assert twice[0].grad is not None
    assert twice[0].grad.tolist() == [1.0] * 3
    assert twice[2].data_ptr() == twice[0].data_ptr()
    assert copy.copy(leaf).data_ptr() == leaf.data_ptr()
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(leaf * 2)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_storages_are_saved() -> None:
    storage = torch.arange(4, dtype=torch.uint8, device="neuron:1").untyped_storage()
    assert copy.deepcopy(storage).device == torch.device("neuron:1")
    back = loaded(saved({"s": storage}), weights_only=False)["s"]
    assert copy.deepcopy(storage).tolist() == back.tolist() == [0, 1, 2, 3]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.ones(3))
        self.view = self.table


def test_moving_a_module_keeps_its_parameters() -> None:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(torch.ones(1, 2)).sum().backward()
    before = net.weight
    for device in ("neuron", "neuron:1", "cpu", "neuron"):
        assert net.to(device).weight is before
        assert before.grad is not None
        assert before.grad.device == before.device == torch.empty(0, device=device).device
        assert before.is_leaf
        assert before.requires_grad
    optimizer.zero_grad()
    net(torch.zeros(1, 2, device="neuron")).sum().backward()
    expected = net.bias.detach() - 1
    optimizer.step()
    assert torch.equal(net.bias, expected)


def test_data_crosses_devices() -> None:
    parameter = nn.Parameter(torch.ones(2, device="neuron"))
    parameter.data = torch.zeros(3, device="neuron:1", dtype=torch.float32)
    assert parameter.device.index == 1
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        parameter.data = torch.eye(2).to_sparse()


@pytest.mark.parametrize(
    "move", [lambda m: m.to("neuron"), lambda m: m.neuron(), lambda m: m.to("neuron:1").to("neuron"), copy.deepcopy]
)
def test_tied_parameters_stay_tied(move: Any) -> None:
    net = move(Tied().to("neuron") if move is copy.deepcopy else Tied())
    assert net.head.weight is net.embedding.weight
    assert len(list(net.parameters())) == 1
    assert net.head.weight.is_neuron
    net.head(net.embedding(torch.tensor([1], device="neuron"))).sum().backward()
    assert net.embedding.weight.grad is net.head.weight.grad is not None


def test_modules_move_everything_they_have() -> None:
    net = nn.LSTM(3, 4, num_layers=2)
    net.register_buffer("kept", torch.ones(2, dtype=torch.int64), persistent=False)
    moved = net.to("neuron", torch.bfloat16)
    assert moved is net
    assert {p.device.type for p in net.parameters()} == {"neuron"}
    assert {p.dtype for p in net.parameters()} == {torch.bfloat16}
    assert net.kept.is_neuron
    assert net.kept.dtype == torch.int64
    assert net.to_empty(device="neuron:1").kept.device.index == 1
    assert nn.Linear(2, 2, device="meta").to_empty(device="neuron").weight.is_neuron
    assert nn.Linear(2, 2, device="neuron").cpu().weight.device.type == "cpu"
