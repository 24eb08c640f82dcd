# ruff: noqa: PT009 - assertEqual of torch's TestCase compares tensors
"""PyTorch's own machinery for tests on any device accepts this one."""

from typing import Any

import torch
from torch.testing._internal.common_device_type import (
    PrivateUse1TestBase,
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    onlyCPU,
    onlyPRIVATEUSE1,
    ops,
    skipMeta,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase

PICKED = [
    op
    for op in op_db
    if op.name in {"add", "mm", "softmax", "cumsum", "index_select", "gelu"} and not op.variant_test_name
]


class TestGeneric(TestCase):
    def test_device_is_ours(self, device: str) -> None:
        self.assertEqual(torch.device(device), torch.device("neuron:0"))
        self.assertTrue(torch.empty(1, device=device).is_neuron)

    @dtypes(torch.float32, torch.bfloat16, torch.int64, torch.bool)
    def test_dtypes(self, device: str, dtype: torch.dtype) -> None:
        tensor = torch.ones(3, device=device, dtype=dtype)
        self.assertEqual(tensor.cpu(), torch.ones(3, dtype=dtype))
        self.assertEqual(tensor, torch.ones(3, dtype=dtype, device=device))

    @deviceCountAtLeast(2)
    def test_several_cores(self, devices: list[str]) -> None:
        self.assertEqual([torch.device(device).index for device in devices], [0, 1, 2, 3])

    @ops(PICKED, allowed_dtypes=(torch.float32,))
    def test_operators(self, device: str, dtype: torch.dtype, op: Any) -> None:
        for sample in op.sample_inputs(device, dtype):
            here = op(sample.input, *sample.args, **sample.kwargs)
            moved = sample.transform(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x)
            self.assertEqual(here.cpu(), op(moved.input, *moved.args, **moved.kwargs), exact_device=True)

    @onlyCPU
    def test_only_on_the_cpu(self, device: str) -> None:
        raise AssertionError("this test is for another device")

    @onlyPRIVATEUSE1
    def test_only_here(self, device: str) -> None:
        self.assertEqual(torch.device(device).type, "neuron")

    @skipMeta
    def test_random_numbers_repeat(self, device: str) -> None:
        torch.manual_seed(0)
        first = torch.rand(4, device=device)
        torch.manual_seed(0)
        self.assertEqual(torch.rand(4, device=device), first)


instantiate_device_type_tests(TestGeneric, globals(), only_for="neuron")


def test_instances_were_made_for_the_device() -> None:
    # The suffix is PRIVATEUSE1 until a test class of this process has been set up, NEURON then.
    (made,) = [value for name, value in globals().items() if name in ("TestGenericPRIVATEUSE1", "TestGenericNEURON")]
    assert issubclass(made, PrivateUse1TestBase)
    names = [name for name in dir(made) if name.startswith("test_")]
    assert "test_dtypes_neuron_bfloat16" in names
    assert "test_only_here_neuron" in names
    assert sum(name.startswith("test_operators_") for name in names) == len(PICKED) >= 5
    assert "TestGeneric" not in globals(), "the template itself does not run"
