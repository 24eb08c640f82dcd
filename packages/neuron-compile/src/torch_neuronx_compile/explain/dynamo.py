"""What Dynamo says of its own work in its structured trace."""

import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torch_neuronx_compile.capture.breaks import TYPE
from torch_neuronx_compile.explain._compat import TRACE
from torch_neuronx_compile.explain.report import Break, Frame

_HEAD = re.compile(r"^Graph break in user code at (?P<location>.+:\d+)$", re.MULTILINE)
_REASON = re.compile(r"^Graph Break Reason: (?P<reason>.*?)^User code traceback:$", re.MULTILINE | re.DOTALL)
_PREAMBLE = re.compile(r"^Encountered graph break.*:$")
_PLACE = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+)')
_TORCH = Path(torch.__file__).parent
_USER_CODE = re.compile(r"^User code traceback:\n(?P<lines>(?:[ \t]+.*\n)+)", re.MULTILINE)


@dataclass
class DynamoTrace(logging.Handler):
    """Keeps the frames and the breaks that the trace reports; a handler of its logger."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    backward_us: dict[str, int] = field(default_factory=dict)
    """Microseconds of compiling backward graphs when they were first needed, by frame."""
    breaks: list[Break] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    """The user's place of a break by the place where Dynamo was, which may be in torch."""

    def __post_init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._lock = threading.Lock()

    def __hash__(self) -> int:
        return id(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Receive one record of the trace; those of other kinds are let go."""
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        with self._lock:
            if "compilation_metrics" in metadata:
                self.metrics.append(metadata["compilation_metrics"])
            elif "bwd_compilation_metrics" in metadata:
                metrics = metadata["bwd_compilation_metrics"]
                frame = metrics.get("compile_id") or ""
                spent = metrics.get("backward_cumulative_compile_time_us") or 0
                self.backward_us[frame] = self.backward_us.get(frame, 0) + spent
            elif metadata.get("artifact", {}).get("name") == "dynamo_graph_break_reason":
                frame = f"{metadata.get('frame_id')}/{metadata.get('frame_compile_id')}"
                text = str(getattr(record, "payload", ""))
                found = read_break(frame, text)
                head = _HEAD.search(text)
                if found is not None and head is not None:
                    self.places[head["location"]] = found.location
                    if found not in self.breaks:
                        self.breaks.append(found)

    def frames(self) -> tuple[Frame, ...]:
        """Return the frames in the order in which Dynamo was done with them."""
        return tuple(_frame(metrics, self.breaks) for metrics in self.metrics)

    def backend_seconds(self) -> float:
        """Return how long the backend took for all frames: AOT Autograd and everything after it."""
        forward = sum(metrics.get("aot_autograd_cumulative_compile_time_us") or 0 for metrics in self.metrics)
        return (forward + sum(self.backward_us.values())) / 1e6

    def tracing_seconds(self) -> float:
        """Return how long Dynamo took for all frames, without the backend."""
        return (
            sum(
                (metrics.get("dynamo_cumulative_compile_time_us") or 0)
                - (metrics.get("aot_autograd_cumulative_compile_time_us") or 0)
                for metrics in self.metrics
            )
            / 1e6
        )


@contextmanager
def traced() -> Iterator[DynamoTrace]:
    """Give what Dynamo reports meanwhile."""
    trace = DynamoTrace()
    TRACE.addHandler(trace)
    try:
        yield trace
    finally:
        TRACE.removeHandler(trace)


def read_break(frame: str, text: str) -> Break | None:
    """Read Dynamo's report of a graph break; ``None`` for one that names no place in the user's program."""
    head, body = _HEAD.search(text), _REASON.search(text)
    if head is None or body is None:
        return None
    lines = [line for line in body["reason"].splitlines() if line.strip() and not _PREAMBLE.match(line)]
    labelled = [line.strip().partition(": ") for line in lines[1:]]
    reason = lines[0].strip() if lines else ""
    context = next((rest for label, _, rest in labelled if label == "Developer debug context"), "")
    user_code = _USER_CODE.search(text)
    return Break(
        frame=frame,
        location=users_place(head["location"], "" if user_code is None else user_code["lines"]),
        reason=reason,
        explanation=" ".join(rest for label, _, rest in labelled if label == "Explanation"),
        hints=tuple(rest for label, _, rest in labelled if label == "Hint"),
        # The backend says "<what was called> calls <operator>" here; it tells observers of a place only once.
        operator=context.partition(" calls ")[0] if reason == TYPE else "",
        traceback="" if user_code is None else user_code["lines"].rstrip(),
    )


def users_place(innermost: str, traceback: str) -> str:
    """Return the innermost ``file:line`` of ``traceback`` outside of torch, else ``innermost``.

    Some of torch's own Python is traced like the user's, as where a custom operator is called.
    """
    outside = [found for found in _PLACE.finditer(traceback) if not Path(found["file"]).is_relative_to(_TORCH)]
    return f"{outside[-1]['file']}:{outside[-1]['line']}" if outside else innermost


def _frame(metrics: dict[str, Any], breaks: list[Break]) -> Frame:
    name = metrics.get("compile_id") or ""
    return Frame(
        id=name,
        function=metrics.get("co_name") or "",
        location=f"{metrics.get('co_filename')}:{metrics.get('co_firstlineno')}",
        seconds=(metrics.get("dynamo_cumulative_compile_time_us") or 0) / 1e6,
        breaks=sum(found.frame == name for found in breaks),
        recompiled=_guard(metrics.get("recompile_reason") or ""),
        error=metrics.get("fail_reason") or "",
    )


def _guard(reason: str) -> str:
    """Return a recompile reason without the quotes of JSON around it."""
    if reason.startswith(("[", '"')):
        try:
            read = json.loads(reason)
        except ValueError:
            return reason
        return "; ".join(read) if isinstance(read, list) else str(read)
    return reason
