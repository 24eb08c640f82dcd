"""A timeline in the format of Chrome's tracer, which Perfetto reads."""

import json
from pathlib import Path
from typing import Any

from torch_neuronx_nki.cost.estimate import LANES, Estimate


def write(estimate: Estimate, path: Path) -> Path:
    """Write the trace of ``estimate`` to ``path`` and return it."""
    path.write_text(json.dumps(trace_of(estimate)) + "\n", encoding="utf-8")
    return path


def trace_of(estimate: Estimate) -> dict[str, Any]:
    """Return one process per core, one thread per engine; transfers that overlap take several threads. Microseconds."""
    timeline = estimate.timeline
    events: list[dict[str, Any]] = []
    queues: dict[int, list[float]] = {}
    threads: dict[tuple[int, int], str] = {}
    for piece in sorted(timeline.slices, key=lambda piece: piece.start):
        length = piece.work.busy
        thread = LANES.index(piece.lane) if piece.lane in LANES else len(LANES)
        name = piece.lane
        if piece.lane == "dma":
            length = piece.end - piece.start
            ends = queues.setdefault(piece.core, [])
            queue = next((at for at, end in enumerate(ends) if end <= piece.start), len(ends))
            ends[queue : queue + 1] = [piece.end]
            thread, name = 100 + queue, f"dma {queue}"
        threads[piece.core, thread] = name
        events.append(
            {
                "name": piece.name or piece.opcode,
                "cat": piece.lane,
                "ph": "X",
                "pid": piece.core,
                "tid": thread,
                "ts": piece.start * 1e6,
                "dur": length * 1e6,
                "args": {
                    "index": piece.index,
                    "opcode": piece.opcode,
                    "source": "" if piece.source is None else str(piece.source),
                    "waits_for": piece.waits_for,
                    "result_after_us": (piece.end - piece.start) * 1e6,
                    "hbm_bytes": piece.work.hbm_read + piece.work.hbm_written,
                    "flops": piece.work.flops,
                },
            }
        )
    names: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": core, "args": {"name": f"{timeline.kernel} core {core} (estimate)"}}
        for core in range(timeline.lnc)
    ]
    names += [
        {"name": "thread_name", "ph": "M", "pid": core, "tid": thread, "args": {"name": name}}
        for (core, thread), name in sorted(threads.items())
    ]
    return {"traceEvents": names + events, "displayTimeUnit": "ns"}
