"""Operators for which neuronx-cc documents a custom call reach it as that call, and the emulator computes it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torch_neuronx_compile.compilers.emulator.documented_calls import EXPANSIONS
from torch_neuronx_compile.worker.documented import TARGETS

from .helpers import check, check_all, compiled, on_device

X = torch.linspace(-6, 6, 60).reshape(3, 4, 5)
CASES: dict[str, tuple[Callable[[Tensor], Tensor], str, str | None]] = {
    "gelu": (F.gelu, "AwsNeuronGelu", "AwsNeuronGeluBackward"),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), "AwsNeuronGeluApprxTanh", None),
    "silu": (F.silu, "AwsNeuronSilu", "AwsNeuronSiluBackward"),
    "softmax": (lambda x: x.softmax(1), "AwsNeuronSoftmax", "AwsNeuronSoftmaxBackward"),
    "topk": (lambda x: x.topk(2, 1)[0], "AwsNeuronTopK", None),
    "erf": (torch.erf, "AwsNeuronErf", None),
}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], str]:
    """Return what gives the text of all programs that were lowered."""
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "root"))
    return lambda: "".join(path.read_text() for path in tmp_path.rglob("*.stablehlo.mlir"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients(dtype: torch.dtype, programs: Callable[[], str]) -> None:
    tolerance = 1e-5 if dtype is torch.float32 else 8e-3
    check_all(
        {name: (function, (X.to(dtype),)) for name, (function, _, _) in CASES.items()},
        grad=True,
        rtol=tolerance,
        atol=tolerance,
    )
    text = programs()
    missing = [
        f"{name}: {target}"
        for name, (_, *targets) in CASES.items()
        for target in targets
        if target is not None and f"@{target}(" not in text
    ]
    assert missing == []


@pytest.mark.parametrize("function", [torch.argmax, torch.argmin])
def test_positions_of_extremes(function: Callable[..., Tensor], programs: Callable[[], str]) -> None:
    x = torch.tensor([[2.0, 3.0, 3.0, 1.0, 1.0], [float("inf"), float("nan"), 0.0, float("nan"), float("-inf")]])
    integers = torch.tensor([[2, 3, 3, 1, 1], [-(2**40), 5, 7, 7, -(2**40)]])
    check_all(
        {
            "numbers with NaN": (lambda x: (function(x, 1, keepdim=True), function(x, 0), function(x)), (x,)),
            "integers": (lambda x: (function(x, 1, keepdim=True), function(x, 0), function(x)), (integers,)),
        }
    )
    assert ("@AwsNeuronArgMax(" if function is torch.argmax else "@AwsNeuronArgMin(") in programs()


def test_topk_of_integers_is_sorted_as_neuronx_cc_has_no_call_for_it(programs: Callable[[], str]) -> None:
    check(lambda x: x.topk(2)[0], torch.tensor([[3, 1, 2], [6, 5, 4]]))
    assert "stablehlo.sort" in programs()
    assert "AwsNeuronTopK" not in programs()


def test_the_emulator_implements_every_call() -> None:
    assert {*TARGETS.values(), "AwsNeuronErf"} == EXPANSIONS.keys()


def test_scalars_need_no_call() -> None:
    (x,) = on_device([torch.tensor(2.0)])
    assert compiled(lambda x: x.softmax(0))(x).item() == 1.0
    assert compiled(lambda x: x.argmax())(x).item() == 0
