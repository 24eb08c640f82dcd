"""An explanation as plain text."""

from collections.abc import Iterator

from torch_neuronx_compile.explain.report import Break, Explanation, Fallback, Frame, Graph, Lookup

_BAR = 30
_OPERATORS = 8


def count(number: int, what: str, plural: str = "") -> str:
    """Write a number with its noun: ``1 graph``, ``2 graphs``."""
    return f"{number} {what if number == 1 else plural or f'{what}s'}"


def summary(explanation: Explanation) -> str:
    """Return the explanation in one line."""
    fallbacks = sum(fallback.calls for fallback in explanation.fallbacks)
    return ", ".join(
        (
            count(len(explanation.frames), "frame"),
            count(len(explanation.graphs), "graph"),
            count(len(explanation.breaks), "break"),
            count(len(explanation.recompiles), "recompile"),
            count(fallbacks, "fallback"),
        )
    )


def write(explanation: Explanation) -> str:
    """Return the explanation for a terminal."""
    lines = [f"{explanation.subject}: {summary(explanation)}"]
    if explanation.error:
        lines += ["", "It ended with:", _indented(explanation.error)]
    sections = {
        "Time": _times(explanation),
        "Frames": (line for frame in explanation.frames for line in _frame(frame)),
        "Graphs": (line for graph in explanation.graphs for line in _graph(graph)),
        "Graph breaks": (line for found in explanation.breaks for line in _break(found)),
        "Fallbacks": (_fallback(fallback) for fallback in explanation.fallbacks),
    }
    for title, content in sections.items():
        body = list(content)
        if body:
            lines += ["", title, *(f"  {line}".rstrip() for line in body)]
    return "\n".join(lines)


def describe(lookups: tuple[Lookup, ...]) -> str:
    """Write the cache look-ups of a graph."""
    return ", ".join(f"{lookup.layer} {'hit' if lookup.hit else 'miss'}" for lookup in lookups)


def _times(explanation: Explanation) -> Iterator[str]:
    longest = max(explanation.seconds.values(), default=0.0)
    for stage, seconds in explanation.seconds.items():
        bar = "#" * round(_BAR * seconds / longest) if longest else ""
        yield f"{stage:9}{seconds:10.3f} s  {bar}"


def _frame(frame: Frame) -> Iterator[str]:
    breaks = f", {count(frame.breaks, 'graph break')}" if frame.breaks else ""
    yield f"{frame.id}  {frame.function}  {frame.location}  {frame.seconds:.3f} s{breaks}"
    if frame.recompiled:
        yield f"     compiled again: {frame.recompiled}"
    if frame.error:
        yield f"     failed: {_first_line(frame.error)}"


def _graph(graph: Graph) -> Iterator[str]:
    found = f" ({describe(graph.lookups)})" if graph.lookups else ""
    yield f"{graph.name}  {graph.kind}, frame {graph.frame}, {count(graph.nodes, 'node')}: {graph.outcome}{found}"
    if not graph.code:
        yield "     not traced: the cache that had it keeps no operators"
    named = [f"{name} x{number}" if number > 1 else name for name, number in graph.operators.items()]
    more = f", and {len(named) - _OPERATORS} more" if len(named) > _OPERATORS else ""
    if named:
        yield f"     {', '.join(named[:_OPERATORS])}{more}"
    yield f"     {', '.join(f'{stage} {seconds:.3f} s' for stage, seconds in graph.seconds.items())}; " + count(
        graph.runs, "run"
    )
    if graph.key:
        yield f"     key {graph.key}"
    if graph.error:
        yield f"     {_first_line(graph.error)}"


def _break(found: Break) -> Iterator[str]:
    yield f"{found.location}  {found.reason}{f' ({found.operator})' if found.operator else ''}"
    if found.explanation:
        yield f"     {found.explanation}"
    for hint in found.hints:
        yield f"     Hint: {hint}"


def _fallback(fallback: Fallback) -> str:
    return f"{fallback.what}  {count(fallback.calls, 'call')}  {_first_line(fallback.reason)}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
