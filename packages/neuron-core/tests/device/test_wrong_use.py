"""Wrong use gets a sentence that says what happened and what to do. Most of them are tested with their contract; these
have no other."""

from typing import Any

import pytest
import torch

from torch_neuronx.errors import UnsupportedDtypeError, UnsupportedOperatorError


@pytest.mark.filterwarnings("ignore:.*quantiz.*:UserWarning", "ignore:.*quantiz.*:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8, torch.qint32])
def test_quantized_dtypes(dtype: torch.dtype) -> None:
    with pytest.raises((UnsupportedDtypeError, UnsupportedOperatorError), match="quantized"):
        torch.empty(2, dtype=dtype, device="neuron")
    with pytest.raises((UnsupportedDtypeError, UnsupportedOperatorError), match="quantized"):
        torch.quantize_per_tensor(torch.ones(2), 1.0, 0, dtype).to("neuron")


def test_a_dtype_that_is_none() -> None:
    with pytest.raises(TypeError, match="dtype"):
        torch.empty(2, dtype="float99", device="neuron")


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, y: x + y,
        lambda x, y: y + x,
        lambda x, y: x @ y,
        lambda x, y: torch.nn.functional.linear(x, y),
        lambda x, y: torch.cat([x, y]),
        lambda x, y: x.add_(y),
        lambda x, y: torch.add(x, x, out=y),
        lambda x, y: torch.where(x > 0, x, y),
        lambda x, y: torch.stack([y, x]),
        lambda x, y: torch._foreach_add([x], [y]),
        lambda x, y: torch.addmm(x, x, y),
        lambda x, y: torch.nn.functional.mse_loss(x, y),
        lambda x, y: torch.special.xlog1py(x, y),
    ],
)
def test_cpu_tensors_do_not_mix(mix: Any) -> None:
    with pytest.raises(
        RuntimeError, match=r"is on cpu device, expected neuron:0\. Move it there with \.to\('neuron:0'\)"
    ):
        mix(torch.ones(3, 3, device="neuron"), torch.ones(3, 3))


def test_scalars_of_the_cpu_mix() -> None:
    x = torch.ones(3, device="neuron")
    assert (x + torch.tensor(2.0)).tolist() == [3.0] * 3
    assert (torch.tensor(2.0) * x).is_neuron
    assert torch.where(x > 0, x, torch.tensor(5.0)).tolist() == [1.0] * 3


def test_a_model_that_was_not_moved() -> None:
    with pytest.raises(RuntimeError, match=r"is on cpu device, expected neuron:0"):
        torch.nn.Linear(3, 3)(torch.ones(1, 3, device="neuron"))
    with pytest.raises(RuntimeError, match=r"is on cpu device, expected neuron:0"):
        torch.nn.Linear(3, 3).to("neuron")(torch.ones(1, 3))


EXTRAS = """
import json, sys, torch
for name in ("torch_neuronx_compile", "torch_neuronx_dist", "torch_neuronx_nki"):
    sys.modules[name] = None  # as where it is not installed
torch._import_device_backends()
import torch.distributed as dist, torch_neuronx
from torch_neuronx.errors import MissingExtraError, NEFFCompilationError
import torch_neuronx.neuron_dynamo_backend as helpers, torch_neuronx.distributed, torch_neuronx.nki
from torch_neuronx.neuron_dynamo_backend import backend, config, exceptions, metrics
assert exceptions.NEFFCompilationError is NEFFCompilationError
uses = {
    "compile": [lambda: helpers.get_model_name, lambda: config.set_model_name, lambda: metrics.get_dynamo_metrics,
                lambda: torch.neuron.get_dynamo_metrics(),
                lambda: backend.neuron_backend(None, []), lambda: torch_neuronx.compiler.precompile],
    "dist": [lambda: torch_neuronx.distributed.mesh_registry,
             lambda: dist.init_process_group("neuron", store=dist.HashStore(), rank=0, world_size=1)],
    "nki": [lambda: torch_neuronx.nki_op, lambda: torch_neuronx.wrap_nki, lambda: torch_neuronx.nki.nki_op],
}
answers = {}
for extra, calls in uses.items():
    answers[extra] = []
    for call in calls:
        try:
            call()
            answers[extra].append("ran")
        except MissingExtraError as error:
            answers[extra].append(str(error))
        except BaseException as error:
            answers[extra].append(repr(error))
answers["still there"] = torch.ones(1, device="neuron").item()
print(json.dumps(answers))
"""


def test_an_extra_that_is_not_installed_gives_the_install_line(fresh_without_device: Any) -> None:
    answers = fresh_without_device(EXTRAS, TORCH_NEURONX_DISABLE_PLUGINS="all").answer
    assert answers.pop("still there") == 1
    for extra, texts in answers.items():
        assert all(f"pip install 'torch-neuronx[{extra}]'" in text for text in texts), texts
        assert len(texts) >= 2


def test_compiling_without_the_extra_gives_the_install_line(fresh_without_device: Any) -> None:
    code = """
    import json, sys, warnings, torch
    warnings.simplefilter("ignore")
    sys.modules["torch_neuronx_compile"] = None
    torch._import_device_backends()
    from torch_neuronx.neuron_dynamo_backend.backend import neuron_backend
    try:
        torch.compile(lambda x: x + 1, backend=neuron_backend)(torch.ones(2, device="neuron"))
    except Exception as error:
        print(json.dumps(str(error)))
    """
    assert (
        "pip install 'torch-neuronx[compile]'" in fresh_without_device(code, TORCH_NEURONX_DISABLE_PLUGINS="all").answer
    )
