"""What torch.compile's mode and options do."""

import warnings

import pytest
import torch

from torch_neuronx.compilers import CompileRequest
from torch_neuronx.errors import ConfigurationError
from torch_neuronx_compile import options
from torch_neuronx_compile.compilers.emulator.compiler import EmulatorCompiler
from torch_neuronx_compile.metrics import get_dynamo_metrics

from .helpers import compiled


@pytest.fixture(autouse=True)
def first_time() -> None:
    options.warn_once.cache_clear()


def _run(**kwargs: object) -> None:
    torch._dynamo.reset()
    compiled(lambda x: x + 1, **kwargs)(torch.ones(2, device="neuron"))


def test_the_model_name_option_names_graphs() -> None:
    _run(options={"model_name": "tiny"})
    assert get_dynamo_metrics()[0].model_name == "tiny"
    assert get_dynamo_metrics()[0].graph_name.startswith("tiny_")


def test_an_unknown_option_warns_once_with_the_known_ones() -> None:
    known = "model_name, fallback_execution, compiler_args, target"
    with pytest.warns(UserWarning, match=rf"does not know the option 'optlevel'\. It knows: {known}"):
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fallback_execution": "yes"}, "'fallback_execution'.*is 'yes'. Use a bool"),
        ({"model_name": 3}, "'model_name'.*is 3. Use a str"),
        ({"model_name": "../up"}, "'../up' is no model name"),
        ({"compiler_args": 1}, "'compiler_args'.*is 1. Use a str or a list of str"),
        ({"compiler_args": ["-O1", 2]}, "'compiler_args'.*Use a str or a list of str"),
        ({"compiler_args": "-O1 '"}, "cannot be split into words.*Close the quotes"),
        ({"compiler_args": ["--optlvel=1"]}, "'compiler_args' has the flag '--optlvel'.*Did you mean --optlevel"),
        ({"target": "trn9"}, "There is no target 'trn9'.*trn2, trn3"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        _run(options=options)
    assert get_dynamo_metrics() == []


def test_in_strict_mode_an_unknown_option_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_STRICT_OPTIONS", "1")
    with pytest.raises(ConfigurationError, match=r"does not know the option 'optlevel'\. It knows: model_name"):
        _run(options={"optlevel": 3})


def _compilations(**kwargs: object) -> int:
    before = len([metric for metric in get_dynamo_metrics() if metric.found_in is None])
    _run(**kwargs)
    return len([metric for metric in get_dynamo_metrics() if metric.found_in is None]) - before


def test_flags_and_target_are_part_of_the_key_and_names_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = {"target": "trn3", "compiler_args": ["--model-type=transformer"]}
    assert _compilations(options=fresh) == 1
    assert _compilations(options=fresh | {"model_name": "other", "fallback_execution": True}) == 0
    assert _compilations(options=fresh | {"compiler_args": "--model-type transformer"}) == 0
    assert _compilations(options=fresh | {"compiler_args": ["--model-type=transformer", "-O3"]}) == 1
    monkeypatch.setenv("NEURON_CC_FLAGS", "--optlevel=3")
    assert _compilations(options=fresh) == 0
    monkeypatch.setenv("NEURON_CC_FLAGS", "--optlevel=1")
    assert _compilations(options=fresh) == 1
    assert _compilations(options=fresh | {"compiler_args": ["--model-type=transformer", "-O", "3"]}) == 0
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    assert _compilations(options={"compiler_args": ["--model-type=transformer"]}) == 0


def test_a_compiler_is_told_the_target_and_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[CompileRequest] = []
    original = EmulatorCompiler.compile

    def compile(self: EmulatorCompiler, request: CompileRequest) -> bytes:
        asked.append(request)
        return original(self, request)

    monkeypatch.setattr(EmulatorCompiler, "compile", compile)
    monkeypatch.setenv("NEURON_CC_FLAGS", "--auto-cast=none -O2 --lnc 2")
    _run(options={"compiler_args": ["-O1", "--enable-fast-context-switch"], "target": "trn3"})
    (request,) = asked
    assert request.target == "trn3"
    assert request.options == {"--auto-cast": "none", "--enable-fast-context-switch": "", "--optlevel": "1"}


def test_flags_that_contradict_the_target_are_refused() -> None:
    for flags, says in (("--target=trn3", "--target.*trn2"), ("-lnc 1", "--lnc.*NEURON_LOGICAL_NC_CONFIG")):
        with pytest.raises(ConfigurationError, match=says):
            _run(options={"compiler_args": flags})


def test_the_name_of_torch_compile_goes_nowhere() -> None:
    _run(name="my_name")
    assert "my_name" not in get_dynamo_metrics()[0].graph_name
