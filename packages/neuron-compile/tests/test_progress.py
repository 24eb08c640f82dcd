"""The progress line: on a terminal, for what takes longer than a second, and gone afterwards."""

import io
import os
import pty
import re
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from torch_neuronx_compile import progress
from torch_neuronx_compile.progress import shown

from .helpers import compiled

CLEARED = re.compile(r"\x1b\[2?K")


class Terminal:
    """A terminal that keeps everything written to it."""

    def __init__(self) -> None:
        self._outer, inner = pty.openpty()
        self.stream = os.fdopen(inner, "w")
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._outer, 4096)
            except OSError:  # how Linux says that the other end is closed
                return
            self._written += data

    def wait_for(self, text: str) -> None:
        for _ in range(200):
            if text in self.text:
                return
            time.sleep(0.05)
        pytest.fail(f"{text!r} was not shown within 10 s: {self.text!r}")

    @property
    def text(self) -> str:
        return self._written.decode()

    def close(self) -> str:
        """Return all that was written."""
        self.stream.close()
        self._reader.join()
        os.close(self._outer)
        return self.text


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal()
    # pytest puts its own stream into sys after the fixtures
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=made.stream))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "DELAY", 0.1)
    yield made
    if not made.stream.closed:
        made.close()


def test_the_line_names_graph_and_seconds_and_goes(terminal: Terminal) -> None:
    with shown("lowering", "model_0_forward_0"):
        terminal.wait_for("lowering model_0_forward_0  0 s")
    text = terminal.close()
    assert CLEARED.search(text[text.rindex("lowering") :])


def test_what_several_threads_compile_is_in_one_line(terminal: Terminal) -> None:
    with shown("lowering", "one"):
        with shown("compiling", "other"):
            terminal.wait_for("lowering one, compiling other  ")
        before = len(terminal.text)
        terminal.wait_for("lowering one, compiling other")
        for _ in range(200):
            if "lowering one  " in terminal.text[before:]:
                break
            time.sleep(0.05)
        else:
            pytest.fail("the step that is over is still shown")


def test_a_step_that_fails_takes_the_line_along(terminal: Terminal) -> None:
    def fail() -> None:
        with shown("compiling", "graph"):
            terminal.wait_for("compiling graph")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    terminal.stream.write("the next thing")
    text = terminal.close()
    assert CLEARED.search(text[text.rindex("compiling graph") : text.rindex("the next thing")])


def test_it_comes_again(terminal: Terminal) -> None:
    for name in ("first", "second"):
        with shown("compiling", name):
            terminal.wait_for(f"compiling {name}")


def test_what_is_quick_is_not_shown(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 60.0)
    with shown("lowering", "quick"):
        pass
    assert terminal.close() == ""


def test_the_variable_switches_it_off(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_PROGRESS", "0")
    threads = threading.active_count()
    with shown("lowering", "graph"):
        assert threading.active_count() == threads
    assert terminal.close() == ""


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_without_a_terminal_there_is_none(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO | None) -> None:
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stderr))
    threads = threading.active_count()
    with shown("lowering", "graph"):
        assert threading.active_count() == threads


def test_a_compilation_shows_itself(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    compiled(lambda x: x * 8.125 - 3)(torch.ones(3, device="neuron"))
    text = terminal.close()
    for stage in ("lowering", "compiling"):
        assert re.search(rf"{stage} model_default_\d+_inference_0", text), text


def test_a_forked_child_has_its_own_line(terminal: Terminal) -> None:
    with shown("lowering", "parent"):
        terminal.wait_for("lowering parent")
        child = os.fork()
        if child == 0:
            with shown("compiling", "child"):
                time.sleep(0.5)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert "compiling child" in terminal.close()
