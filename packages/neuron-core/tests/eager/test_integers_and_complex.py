"""int64 is exact unless strict mode asks what the chip would do; complex numbers run on the host and are counted."""

import subprocess
import sys

import pytest
import torch

import torch_neuronx

BIG = 2**40 + 1


def test_int64_is_exact() -> None:
    values = torch.tensor([BIG, -BIG, 3])
    on_device = values.to("neuron")
    assert torch.equal((on_device * 3 + 1).cpu(), values * 3 + 1)
    assert on_device.sum().item() == 3
    assert torch.equal(on_device.cpu(), values)


STRICT = """
import pytest, torch
from torch_neuronx.errors import IntegerRangeError
small = torch.tensor([2**31 - 1, -(2**31)], device="neuron")
with pytest.raises(IntegerRangeError, match=r"aten::add.* has the int64 value 2147483648"):
    small + 1
with pytest.raises(IntegerRangeError, match="1099511627777"):
    torch.tensor([2**40 + 1]).to("neuron")
with pytest.raises(IntegerRangeError, match="-4294967296"):
    small.clone().mul_(2)
assert torch.equal((small - small).cpu(), torch.zeros(2, dtype=torch.int64))
"""


def test_strict_mode_names_operator_and_value(subprocess_environment: dict[str, str]) -> None:
    environment = subprocess_environment | {"TORCH_NEURONX_STRICT_INT64": "1"}
    subprocess.run([sys.executable, "-c", STRICT], check=True, timeout=120, env=environment)


def test_complex_runs_and_counts_as_fallback() -> None:
    values = torch.randn(4, 4, dtype=torch.complex64)
    on_device = values.to("neuron")
    torch_neuronx.clear_op_tracking()
    product = on_device @ on_device
    assert torch_neuronx.get_fallback_ops() == ["aten::mm"]
    assert product.device.type == "neuron"
    torch.testing.assert_close(product.cpu(), values @ values)


@pytest.mark.parametrize("bits", ["conj", "neg", "both"])
def test_lazy_bits_are_honoured(bits: str) -> None:
    def lazy(x: torch.Tensor) -> torch.Tensor:
        return {"conj": x.conj(), "neg": x.conj().imag, "both": x.conj().imag.conj()}[bits]

    values = torch.randn(5, dtype=torch.complex64)
    on_device = lazy(values.to("neuron"))
    torch.testing.assert_close(on_device.cpu(), lazy(values).resolve_conj().resolve_neg())
    torch.testing.assert_close((on_device * 2).cpu(), lazy(values) * 2)
    torch.testing.assert_close(on_device.clone().cpu(), lazy(values).clone())


ONLY_UNIMPLEMENTED = """
import pytest, torch
from torch_neuronx.errors import UnsupportedOperatorError
c = torch.ones(2, 2, dtype=torch.complex64).to("neuron")
with pytest.raises(UnsupportedOperatorError, match="FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS"):
    c @ c
torch.complex(torch.ones(2, device="neuron"), torch.ones(2, device="neuron"))
"""


def test_a_native_operator_may_be_kept_from_falling_back(subprocess_environment: dict[str, str]) -> None:
    environment = subprocess_environment | {"TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS": "yes"}
    subprocess.run([sys.executable, "-c", ONLY_UNIMPLEMENTED], check=True, timeout=120, env=environment)
