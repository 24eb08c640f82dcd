"""A line on the terminal while something compiles for longer than a second."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch_neuronx import config

DELAY = 1.0
"""Seconds after which the line appears."""

_REFRESH = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One graph in one stage."""

    stage: str
    """A verb: ``lowering``, ``compiling``."""
    graph: str
    began: float = field(default_factory=time.monotonic)


class Line:
    """The line of this process: what is under way, in all threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._steps: list[Step] = []
        self._watched = False
        """Whether a thread waits until the line is due, or paints it."""
        self._visible = False

    def begin(self, step: Step) -> None:
        """Add a step; the first one starts the thread that paints."""
        with self._changed:
            self._steps.append(step)
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, name="neuron-progress", daemon=True).start()

    def end(self, step: Step) -> None:
        """Take a step away; after the last one the line is gone when this returns."""
        with self._changed:
            self._steps.remove(step)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._steps or not self._visible)

    def _watch(self) -> None:
        with self._changed:
            while self._steps and (early := self._steps[0].began + DELAY - time.monotonic()) > 0:
                self._changed.wait(early)
            self._visible = bool(self._steps)
            self._watched = self._visible
        if self._visible:
            try:
                self._paint()
            finally:
                with self._changed:
                    self._visible = False
                    self._changed.notify_all()

    def _paint(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        spinner = Spinner("dots")
        with Live(
            console=Console(file=sys.stderr),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,  # the program's streams are its own
            redirect_stderr=False,
        ) as live:
            while True:
                with self._changed:
                    if not self._steps:
                        self._watched = False
                        return
                    spinner.update(text=Text(describe(self._steps), no_wrap=True, overflow="ellipsis"))
                live.update(spinner, refresh=True)
                with self._changed:
                    if self._steps:
                        self._changed.wait(_REFRESH)


def describe(steps: list[Step]) -> str:
    """Write what is under way: each graph with its stage, and the seconds since the oldest step began."""
    seconds = time.monotonic() - steps[0].began
    return f"{', '.join(f'{step.stage} {step.graph}' for step in steps)}  {seconds:.0f} s"


_lines: dict[int, Line] = {}
"""By process: a forked child has no painter of its parent's."""


@contextmanager
def shown(stage: str, graph: str) -> Iterator[None]:
    """Have the line name ``graph`` meanwhile, where stderr is a terminal and ``TORCH_NEURONX_PROGRESS`` allows it."""
    if sys.stderr is None or not sys.stderr.isatty() or not config.get(config.PROGRESS):
        yield
        return
    line = _lines.setdefault(os.getpid(), Line())
    step = Step(stage, graph)
    line.begin(step)
    try:
        yield
    finally:
        line.end(step)
