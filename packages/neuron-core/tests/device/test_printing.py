"""Printing: the CPU's text with the device's name, and nothing said beside it."""

import pytest
import torch

TENSORS = {
    "integers": lambda: torch.arange(6).view(2, 3),
    "floats": lambda: torch.tensor([[1.5, -2.25], [1e-3, 100.0]]),
    "special": lambda: torch.tensor([float("nan"), float("inf"), 1e10]),
    "large": lambda: torch.arange(20_000.0).view(100, 200),
    "scalar": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 3),
    "bool": lambda: torch.tensor([True, False]),
    "half": lambda: torch.ones(2, dtype=torch.bfloat16),
    "complex": lambda: torch.tensor([1 + 2j]),
    "conjugate": lambda: torch.tensor([1 + 2j]).conj(),
    "view": lambda: torch.arange(6.0)[1::2],
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
}


def moved(tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(tensor.detach().to("neuron"))
    if tensor.is_conj():
        return tensor.conj().to("neuron").conj()
    return tensor.to("neuron")


def compact(text: str) -> str:
    return "".join(text.replace("device='neuron:0'", "").split()).replace(",,", ",").replace(",)", ")")


@pytest.mark.parametrize("make", TENSORS.values(), ids=TENSORS)
def test_it_looks_as_on_the_cpu(make: object, caplog: pytest.LogCaptureFixture) -> None:
    tensor = make()  # type: ignore[operator]
    there = moved(tensor)
    caplog.clear()
    text = repr(there)
    assert "device='neuron:0'" in text
    assert compact(text) == compact(repr(tensor))
    assert str(there) == text
    assert f"{there}" == (text if there.dim() else str(there.item()))


def test_gradients_and_formats() -> None:
    x = torch.ones(2, device="neuron", requires_grad=True)
    assert repr(x) == "tensor([1., 1.], device='neuron:0', requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 2.], device='neuron:0', grad_fn=<MulBackward0>)"
    assert f"{x.detach()[0]:.3f}" == "1.000"
    assert repr(torch.ones(1, device="neuron:3")) == "tensor([1.], device='neuron:3')"
    assert "device=neuron:0" in repr(x.untyped_storage())
    with torch.device("neuron"):
        assert "neuron:0" in repr(torch.ones(1))


def test_nothing_is_said_in_a_new_process(fresh: object) -> None:
    code = """
    import torch, warnings
    warnings.simplefilter("always")
    for dtype in (torch.float32, torch.int64, torch.bool, torch.float16, torch.uint8):
        print(torch.arange(4, device="neuron").to(dtype))
    print(torch.rand(1200, device="neuron"), torch.ones(2, device="neuron", requires_grad=True) * 2)
    print(torch.nn.Linear(2, 2).to("neuron").state_dict())
    """
    done = fresh(code)  # type: ignore[operator]
    assert (done.status, done.err) == (0, "")
    assert done.out.count("device='neuron:0'") == 9
