"""Compile-only mode: its options, where it is on, and which runtime holds tensors then."""

import logging
import threading
from collections.abc import Iterator

import pytest

from torch_neuronx import plugins
from torch_neuronx.compiler import CompileOptions, compile_only, current_options
from torch_neuronx.errors import ConfigurationError, RuntimeUnavailableError
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.runtimes import select
from torch_neuronx.runtimes.emulator import EmulatorRuntime
from torch_neuronx.runtimes.interface import Availability, Runtime


class NotHere(EmulatorRuntime):
    name = "not-here"

    def available(self) -> Availability:
        return Availability(False, "nobody answers")


class NoEager(EmulatorRuntime):
    name = "no-eager"
    eager = False


class Plugin:
    @hookimpl
    def torch_neuronx_register_runtimes(self) -> list[Runtime]:
        return [NotHere(), NoEager()]


@pytest.fixture
def runtimes() -> Iterator[None]:
    plugins.manager().register(Plugin(), "runtimes-of-a-test")
    yield
    plugins.manager().unregister("runtimes-of-a-test")


def test_words_are_split_and_kept() -> None:
    assert CompileOptions(compiler_args="-O1 --logfile='a b'").compiler_args == ("-O1", "--logfile=a b")
    assert CompileOptions(compiler_args=["-O1", "a b"]).compiler_args == ("-O1", "a b")
    assert hash(CompileOptions(compiler_args=["-O1"])) == hash(CompileOptions(compiler_args="-O1"))
    with pytest.raises(ConfigurationError, match="Close the quotes"):
        CompileOptions(compiler_args="'")


def test_inner_options_come_over_outer_ones() -> None:
    outer = CompileOptions(model_name="outer", fallback_execution=True, compiler_args="-O1", target="trn3")
    assert CompileOptions().over(outer) == outer
    inner = CompileOptions(fallback_execution=False, compiler_args="-O2", target="trn2")
    assert inner.over(outer) == CompileOptions("outer", False, "-O1 -O2", "trn2")


def test_it_is_on_in_its_block_and_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[CompileOptions | None] = []
    with compile_only():
        thread = threading.Thread(target=lambda: seen.append(current_options()))
        thread.start()
        thread.join()
        assert current_options() == CompileOptions()
    with pytest.raises(ZeroDivisionError), compile_only():
        raise ZeroDivisionError
    assert seen == [None]
    assert current_options() is None
    monkeypatch.setenv("TORCH_NEURONX_COMPILE_ONLY", "1")
    assert current_options() == CompileOptions()
    with compile_only(CompileOptions(target="trn3")):
        assert current_options() == CompileOptions(target="trn3")


@pytest.mark.usefixtures("runtimes")
def test_a_runtime_that_cannot_hold_tensors_is_no_error_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCH_NEURONX_RUNTIME", "not-here")
    select._say_emulated.cache_clear()
    with pytest.raises(RuntimeUnavailableError, match="nobody answers"):
        select.select_device_runtime()
    with caplog.at_level(logging.WARNING, "torch_neuronx.device"), compile_only():
        for _ in range(2):
            assert select.select_device_runtime().name == "emulator"
    assert caplog.text.count("nobody answers") == 1
    monkeypatch.setenv("TORCH_NEURONX_RUNTIME", "no-eager")
    assert select.select_device_runtime().name == "no-eager"
    with compile_only():
        assert select.select_device_runtime().name == "emulator"
    monkeypatch.setenv("TORCH_NEURONX_RUNTIME", "emulator")
    with compile_only():
        assert select.select_device_runtime().name == "emulator"
    monkeypatch.setenv("TORCH_NEURONX_RUNTIME", "unknown")
    with pytest.raises(ConfigurationError, match="no runtime 'unknown'"), compile_only():
        select.select_device_runtime()
