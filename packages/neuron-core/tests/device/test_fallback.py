"""The boxed fallback: what has no kernel of its own runs through the CPU's, with the rules in force.

tests/eager has the rules op by op; here is the mechanism.
"""

import logging
from typing import Any

import pytest
import torch

import torch_neuronx

# Without an entry of its own for the device, one for each way arguments and results can look.
CASES = {
    "functional": lambda t: torch.logcumsumexp(t, 0),
    "in place": lambda t: t.clone().cumsum_(0),
    "out": lambda t: torch.logcumsumexp(t, 0, out=torch.empty(0, device=t.device)),
    "several results": lambda t: torch.linalg.qr(t)[1].abs(),
    "list in": lambda t: torch.block_diag(t, t[:1]),
    "list out": lambda t: list(torch.linalg.lu(t)),
    "optional list": lambda t: t.clone().index_put_((torch.tensor([0, 2], device=t.device),), t[0]),
    "foreach": lambda t: torch._foreach_lerp([t, t], [t * 2, t * 3], 0.5),
    "foreach in place": lambda t: (lambda copies: (torch._foreach_mul_(copies, 2.0), copies)[1])(
        [t.clone(), t.clone()]
    ),
    "scalar result": lambda t: torch.linalg.det(t),
    "no tensor result": lambda t: torch.tensor(torch.equal(t, t)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_fallback_equals_the_cpu_and_stays_on_the_device(case: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    expected, found = case(x), case(x.to("neuron"))
    for a, b in zip(*([t] if isinstance(t, torch.Tensor) else t for t in (expected, found)), strict=True):
        assert b.is_neuron or case is CASES["no tensor result"]
        torch.testing.assert_close(b.cpu(), a, rtol=0, atol=1e-6)


def test_fallbacks_differentiate() -> None:
    x = torch.randn(5, requires_grad=True)
    y = x.detach().to("neuron").requires_grad_()
    torch.logcumsumexp(x, 0).sum().backward()
    torch.logcumsumexp(y, 0).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    torch.testing.assert_close(y.grad.cpu(), x.grad)


def test_a_fallback_is_logged_once_per_operator(fresh: Any) -> None:
    code = """
    import torch
    x = torch.ones(3, device="neuron")
    for _ in range(3):
        torch.special.erfcx(x)
        torch.special.airy_ai(x)
    """
    done = fresh(code)
    assert done.status == 0
    lines = done.err.splitlines()
    assert any("aten::special_erfcx" in line for line in lines)
    assert len(lines) == len(set(lines)) == 2
    assert all(
        "runs on the CPU instead of device neuron" in line and "Said once per operator" in line for line in lines
    )


def test_fallbacks_are_counted_per_call() -> None:
    x = torch.ones(3, device="neuron")
    torch_neuronx.clear_op_tracking()
    for _ in range(3):
        torch.special.erfcx(x)
    torch.add(x, x)
    executed, fallen_back = torch_neuronx.get_executed_ops(), torch_neuronx.get_fallback_ops()
    assert fallen_back.count("aten::special_erfcx") == 3
    assert executed.count("aten::add") == 1
    assert "aten::add" not in fallen_back
    torch_neuronx.clear_op_tracking()
    assert torch_neuronx.get_executed_ops() == torch_neuronx.get_fallback_ops() == []


def test_an_operator_s_own_error_arrives_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    x = torch.ones(3, 4, device="neuron")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        x @ x
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.zeros(2, 2, device="neuron"))
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.logcumsumexp(x, 5)
    assert (x + 1).sum().item() == 24, "an error leaves the device usable"


@pytest.mark.parametrize(("value", "raises"), [("0", False), ("1", True), ("YES", True)])
def test_the_switch_for_unimplemented_operators_only(fresh: Any, value: str, raises: bool) -> None:
    code = """
    import json, torch
    from torch_neuronx.errors import UnsupportedOperatorError
    answers = []
    for use in (lambda: torch.special.erfcx(torch.ones(3, device="neuron")),
                lambda: torch.ones(3, dtype=torch.complex64, device="neuron") * 2):
        try:
            use()
            answers.append("ran")
        except UnsupportedOperatorError as error:
            answers.append(str(error))
    print(json.dumps(answers))
    """
    unimplemented, native = fresh(code, TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=value).answer
    assert unimplemented == "ran"
    assert (native != "ran") is raises
    if raises:
        assert "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS" in native


def test_unsupported_operators_and_the_switch_that_relaxes(fresh: Any) -> None:
    code = """
    import json, torch
    x = torch.ones(2, 2, device="neuron")
    try:
        print(json.dumps(torch.ops.quantization._FloatToBfloat16Quantized(x).shape))
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]))
    """
    name, text = fresh(code).answer
    assert name == "UnsupportedOperatorError"
    assert "TORCH_NEURONX_EMULATOR_RELAXED=1" in text
    assert fresh(code, TORCH_NEURONX_EMULATOR_RELAXED="1").answer == [2, 2]
