"""What an explanation says: plain frozen data. Times are seconds of wall clock."""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path


class Stage(StrEnum):
    """Where the time of a compiled program goes."""

    DYNAMO = "dynamo"
    """Tracing the user's Python; compiling the graphs is not in it."""
    AOT = "aot"
    """AOT Autograd: decompositions, the joint graph and its parts, loading what was compiled."""
    PASSES = "passes"
    LOWERING = "lowering"
    COMPILE = "compile"
    RUN = "run"
    """Calls of compiled graphs, as the host saw them."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One compilation of one Python function by Dynamo."""

    id: str
    """Dynamo's name for it: number of the function, number of its compilation: ``0/1``."""
    function: str
    location: str
    """``file:line`` of the function."""
    seconds: float
    """All of its compilation, the graphs' included."""
    breaks: int
    """How often tracing it met a graph break; Dynamo then traces the rest as a frame of its own."""
    recompiled: str
    """The guard that failed, where an earlier compilation did not fit; else empty."""
    error: str
    """Why the compilation failed; else empty."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A question to one layer of the compilation cache."""

    layer: str
    hit: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph that AOT Autograd made."""

    name: str
    kind: str
    """``forward``, ``backward`` or ``inference``."""
    frame: str
    """The :class:`Frame` that it is of."""
    nodes: int
    operators: dict[str, int]
    """How often each operator is called, the most frequent first. Empty, like ``code`` and ``reproduction``, where a
    cache of PyTorch's had the graph, which then is not traced."""
    key: str
    """Content key of the program; empty where it did not get so far."""
    outcome: str
    """``compiled``, ``found in`` one of the caches, ``not compiled``, or given up in favour of a graph break."""
    lookups: tuple[Lookup, ...]
    seconds: dict[Stage, float]
    """Time of the stages that this graph went through."""
    runs: int
    error: str
    """Why it is not compiled; else empty."""
    code: str
    """The graph as Python with the types of all values and the user's lines."""
    reproduction: str
    """A program of its own that compiles and runs this graph."""


@dataclass(frozen=True, slots=True)
class Break:
    """A place where Dynamo split a function."""

    frame: str
    location: str
    """``file:line`` in the user's program."""
    reason: str
    explanation: str
    hints: tuple[str, ...]
    operator: str
    """The operator that cannot be compiled, if it was one."""
    traceback: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """What ran outside of compiled graphs or on the CPU: an operator, or a whole graph in eager mode."""

    what: str
    reason: str
    calls: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was compiled and why, what was not, what was compiled again, and where the time went."""

    subject: str
    """What was explained: a function or a program."""
    frames: tuple[Frame, ...]
    graphs: tuple[Graph, ...]
    breaks: tuple[Break, ...]
    fallbacks: tuple[Fallback, ...]
    seconds: dict[Stage, float]
    error: str
    """The exception that ended the call or the program; empty if none did."""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def recompiles(self) -> tuple[Frame, ...]:
        """The frames that an earlier compilation did not fit."""
        return tuple(frame for frame in self.frames if frame.recompiled)

    def text(self) -> str:
        """Return the explanation for a terminal."""
        from torch_neuronx_compile.explain.text import write

        return write(self)

    def __str__(self) -> str:
        return self.text()

    def json(self) -> str:
        """Return the explanation as JSON: an object with this class's fields."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)

    def html(self, path: str | Path) -> Path:
        """Write the explanation as one HTML file, which needs nothing else, and return its path."""
        from torch_neuronx_compile.explain.page import write

        return write(self, Path(path))

    def write_reproductions(self, folder: str | Path) -> list[Path]:
        """Write the reproduction of each graph that was traced as ``<graph>.py`` in ``folder``; return the paths."""
        directory = Path(folder)
        directory.mkdir(parents=True, exist_ok=True)
        paths = []
        for graph in self.graphs:
            if graph.reproduction:
                paths.append(directory / f"{graph.name}.py")
                paths[-1].write_text(graph.reproduction, encoding="utf-8")
        return paths
