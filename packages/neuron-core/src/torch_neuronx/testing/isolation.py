"""Runs cases in a worker process, so that a crash or a hang costs one case and not the run.

The worker is any command that answers each JSON line on its standard input with one JSON line; `serve` is its side of
the bargain. Needs no torch.
"""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Self

_READY = {"ready": True}
_STDERR_TAIL = 400


class Verdict(Enum):
    """How a case sent to a worker ended."""

    ANSWERED = "answered"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"


@dataclass(frozen=True)
class Outcome:
    """What came back for one case: the worker's answer, or how it died and the last it said on standard error."""

    verdict: Verdict
    answer: Any = None
    detail: str = ""


class IsolatedWorker:
    """A worker process that is started when needed and replaced after a crash or a hang.

    Args:
        command: program and arguments of the worker.
        time_limit: seconds one case may take.
        start_limit: seconds the worker may take from its start until it can take cases.
        environment: variables set for the worker on top of this process's own.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        time_limit: float,
        start_limit: float = 120.0,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._time_limit = time_limit
        self._start_limit = start_limit
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the worker, closed in close()
        self._pending = b""

    def __enter__(self) -> Self:
        """Return the worker; nothing is started yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the worker process."""
        self.close()

    def close(self) -> None:
        """End the worker process, if one runs. The worker can not be used afterwards."""
        self._stop()
        self._errors.close()

    def run(self, case: Any) -> Outcome:
        """Send one JSON-serializable case and wait for its answer.

        Raises:
            RuntimeError: the worker does not start; its standard error is in the message.
        """
        process = self._process if self._process is not None and self._process.poll() is None else self._start()
        assert process.stdin is not None
        self._errors.seek(0)
        self._errors.truncate()
        try:
            process.stdin.write(json.dumps(case).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        return self._receive(self._time_limit)

    def _start(self) -> subprocess.Popen[bytes]:
        self._stop()
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=self._environment,
        )
        self._process = process
        outcome = self._receive(self._start_limit)
        if outcome.answer != _READY:
            detail = outcome.detail or self._last_errors()
            self._stop()
            raise RuntimeError(
                f"The worker {' '.join(self._command)!r} did not start ({outcome.verdict.value}): {detail}. "
                "Run that command by hand to see why."
            )
        return process

    def _receive(self, limit: float) -> Outcome:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    detail = self._last_errors()
                    self._stop()
                    return Outcome(Verdict.TIMED_OUT, detail=f"no answer in {limit:g} s; {detail}".rstrip("; "))
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    return self._died()
                self._pending += chunk
        line, self._pending = self._pending.split(b"\n", 1)
        return Outcome(Verdict.ANSWERED, answer=json.loads(line))

    def _died(self) -> Outcome:
        assert self._process is not None
        code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        detail = self._last_errors()
        self._stop()
        return Outcome(Verdict.CRASHED, detail=f"{how}; {detail}".rstrip("; "))

    def _last_errors(self) -> str:
        self._errors.seek(0)
        return " ".join(self._errors.read().decode(errors="replace").split())[-_STDERR_TAIL:]

    def _stop(self) -> None:
        self._pending = b""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # A dead reader leaves the unsent case in the buffer; closing would try to send it once more.
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


def serve(answer: Callable[[Any], Any]) -> None:
    """Answer cases until standard input ends: the worker's main loop.

    Whatever `answer` prints goes to standard error, so that it cannot be taken for an answer.
    """
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    def reply(message: Any) -> None:
        replies.write(json.dumps(message).encode() + b"\n")
        replies.flush()

    reply(_READY)
    for line in sys.stdin:
        reply(answer(json.loads(line)))
