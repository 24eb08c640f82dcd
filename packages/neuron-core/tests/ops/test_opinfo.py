"""A representative part of OpInfo through PyTorch's device-generic test machinery.

`python -m tools.opinfo.sweep` runs the whole of it; docs/opinfo.md has the result.
"""

import os
import warnings
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_device_type import (
    PrivateUse1TestBase,
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    onlyOn,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase

import torch_neuronx  # noqa: F401  makes the device known where the package is not installed
from torch_neuronx.errors import UnsupportedOperatorError
from torch_neuronx.ops.statuses import load_shipped_table
from torch_neuronx.testing import CpuRunError, Values, compare_with_cpu

NAMES = """
abs acos add addbmm addcdiv addcmul addmm all amax amin any arange argmax argsort as_strided atan2 baddbmm bernoulli
bitwise_and bmm broadcast_to bucketize cat cdist chunk clamp clone complex conj contiguous copysign cos cummax cumprod
cumsum diag diagonal diff div dot einsum empty empty_like eq erf exp expand eye fft.fft flatten flip floor_divide fmod
frexp full gather ge index_add index_copy index_fill index_put index_select isclose isfinite kthvalue lerp
linalg.cholesky linalg.det linalg.eigh linalg.inv linalg.lstsq linalg.norm linalg.qr linalg.solve linalg.svd linspace
log log_softmax logcumsumexp logical_and logsumexp masked_fill masked_scatter masked_select matmul max mean median
meshgrid min mm mode mul multinomial nan_to_num narrow native_layer_norm neg new_empty new_zeros
nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.batch_norm nn.functional.bilinear
nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.cross_entropy nn.functional.dropout
nn.functional.embedding nn.functional.embedding_bag nn.functional.gelu nn.functional.grid_sample
nn.functional.group_norm nn.functional.interpolate nn.functional.layer_norm nn.functional.linear
nn.functional.max_pool2d nn.functional.multi_head_attention_forward nn.functional.one_hot nn.functional.pad
nn.functional.rms_norm nn.functional.scaled_dot_product_attention nn.functional.silu nn.functional.softplus nonzero
norm normal ones permute pow prod put quantile rand_like randint randn repeat reshape resize_ roll round scatter
scatter_add scatter_reduce searchsorted select sigmoid sign sin slice softmax sort special.i0e split sqrt squeeze
stack std sub sum svd t take tanh tensordot tile topk trace transpose tril triu unbind unfold unique unsqueeze var
view view_as_complex where xlogy zeros
""".split()  # noqa: SIM905  a list of this length reads better as text
PROTECTED = os.environ.get("TORCH_NEURONX_EMULATOR_PROTECT") == "1"
# Of each entry; the sweep takes all. With memory protected, where two system calls surround every kernel, a few show
# what touches memory outside of kernels: that depends on an operator's way to its kernel, not on shapes.
SAMPLES = 4 if PROTECTED else 32
CHOSEN = [entry for entry in op_db if entry.name in NAMES and entry.variant_test_name != "triton_optimized"]
FEW = [entry for entry in CHOSEN if entry.name in NAMES[::3]]
UNINITIALIZED = {"empty", "empty_like", "new_empty"}


@pytest.fixture(autouse=True)
def _seeds_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    # Entries that draw set a seed of their own, so that no other seed could show that they draw.
    def call(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    monkeypatch.setattr(common_methods_invocations, "wrapper_set_seed", call)


def compare(entry: Any, device: str, dtype: torch.dtype) -> int:
    """Compare samples of an entry; how many there were that the CPU can run."""
    wants_gradient = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    values = Values.IGNORE if entry.name in UNINITIALIZED else Values.DETECT
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ops that are deprecated, and of those that are slow in a way
        for sample in islice(entry.sample_inputs("cpu", dtype, requires_grad=wants_gradient), SAMPLES):
            has_tensor = isinstance(sample.input, torch.Tensor | list | tuple)
            kwargs = sample.kwargs if has_tensor else {"device": "cpu", **sample.kwargs}
            try:
                compare_with_cpu(
                    entry.op,
                    sample.input,
                    *sample.args,
                    kwargs=kwargs,
                    device=device,
                    grad=wants_gradient,
                    values=values,
                )
            except CpuRunError:
                continue
            compared += 1
    return compared


class TestOpInfo(TestCase):  # type: ignore[misc]  # torch does not type its test machinery
    @ops(CHOSEN, allowed_dtypes=(torch.float32,))
    def test_float32_with_gradients(self, device: str, dtype: torch.dtype, op: Any) -> None:
        assert compare(op, device, dtype) > 0

    @ops(FEW, allowed_dtypes=(torch.int64, torch.bool, torch.bfloat16, torch.float16))
    def test_other_dtypes(self, device: str, dtype: torch.dtype, op: Any) -> None:
        assert compare(op, device, dtype) > 0


class TestMachinery(TestCase):  # type: ignore[misc]
    """What test suites of other projects that are generic over devices rely on."""

    @onlyOn(["neuron"])
    def test_the_device_is_ours_by_name_and_index(self, device: str) -> None:
        assert self.device_type == "neuron"
        assert device == f"neuron:{torch.neuron.current_device()}"
        assert self.get_primary_device() == device

    @deviceCountAtLeast(2)
    def test_all_cores_are_devices(self, devices: list[str]) -> None:
        assert devices == self.get_all_devices()
        assert [torch.ones(2, device=device).sum().item() for device in devices] == [2.0] * len(devices)

    @dtypes(torch.float32, torch.bfloat16, torch.int64, torch.bool)
    def test_tensors_compare_across_devices(self, device: str, dtype: torch.dtype) -> None:
        ones = torch.ones(3, dtype=dtype, device=device)
        equal = self.assertEqual  # compares tensors; no plain assert does
        equal(ones, torch.ones(3, dtype=dtype), exact_device=False)
        with pytest.raises(AssertionError, match="device"):
            equal(ones, torch.ones(3, dtype=dtype), exact_device=True)

    def test_what_the_table_calls_unsupported_is_refused(self, device: str) -> None:
        assert load_shipped_table()["aten::quantize_per_tensor"].reason
        x = torch.ones(3, device=device)
        with pytest.raises(UnsupportedOperatorError, match="quantize_per_tensor"):
            torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)


instantiate_device_type_tests(TestOpInfo, globals(), only_for="neuron")
instantiate_device_type_tests(TestMachinery, globals(), only_for="neuron")


def test_the_machinery_made_tests_for_the_device() -> None:
    # The suffix is the device type's name, PRIVATEUSE1 until a test class of this process has been set up, NEURON then.
    made = [value for name, value in globals().items() if name.startswith("TestOpInfo") and isinstance(value, type)]
    (test_class,) = [one for one in made if issubclass(one, PrivateUse1TestBase)]
    assert len([name for name in dir(test_class) if name.startswith("test_")]) > 300
