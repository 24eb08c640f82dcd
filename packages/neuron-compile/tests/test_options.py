"""What torch.compile's mode and options do."""

import warnings

import pytest
import torch

from torch_neuronx_compile import options
from torch_neuronx_compile.metrics import get_dynamo_metrics

from .helpers import compiled


@pytest.fixture(autouse=True)
def first_time() -> None:
    options._warn.cache_clear()


def _run(**kwargs: object) -> None:
    torch._dynamo.reset()
    compiled(lambda x: x + 1, **kwargs)(torch.ones(2, device="neuron"))


def test_the_model_name_option_names_graphs() -> None:
    _run(options={"model_name": "tiny"})
    assert get_dynamo_metrics()[0].model_name == "tiny"
    assert get_dynamo_metrics()[0].graph_name.startswith("tiny_")


def test_an_unknown_option_warns_once_with_the_known_ones() -> None:
    with pytest.warns(UserWarning, match="does not know the option 'optlevel'. It knows: model_name, fallback_exec"):
        _run(options={"optlevel": 3})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _run(options={"optlevel": 3})


def test_another_mode_warns_once() -> None:
    with pytest.warns(UserWarning, match="mode='max-autotune' has no effect"):
        _run(mode="max-autotune")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _run(mode="max-autotune")
        _run(mode="default")


def test_an_option_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(Exception, match=r"'fallback_execution'.*is 'yes'. Use a bool"):
        _run(options={"fallback_execution": "yes"})
