"""Records what OpInfo reaches and lowers it, one worker process each; both steps resume where they stopped."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch_neuronx.testing.isolation import IsolatedWorker, Verdict

RECORD_LIMIT = 240.0
LOWER_LIMIT = 40.0
ATTEMPTS = 24
DEATHS = 2
"""How often an operator may end the lowering process before its other samples are left out."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def read_lines(path: Path) -> list[dict[str, Any]]:
    """JSON lines of a file; a last line that was cut off by a stopped run is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    complete = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in complete.splitlines()]


def resume(path: Path) -> list[dict[str, Any]]:
    """What a stopped run left, after cutting off a line that it did not finish."""
    done = read_lines(path)
    path.write_text("".join(json.dumps(line) + "\n" for line in done))
    return done


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Add one JSON line."""
    with path.open("a") as file:
        file.write(json.dumps(value) + "\n")


def record_all(path: Path, entries: int) -> None:
    """Record each OpInfo entry that the file does not hold yet."""
    done = {line["index"] for line in resume(path)}
    command = [sys.executable, "-m", "tools.op_statuses.record"]
    with IsolatedWorker(command, time_limit=RECORD_LIMIT, environment=ONE_THREAD) as worker:
        for index in range(entries):
            if index in done:
                continue
            outcome = worker.run(index)
            answer = outcome.answer if outcome.verdict is Verdict.ANSWERED else {"calls": [], "died": outcome.detail}
            append_line(path, {"index": index, **answer})
            print(f"recorded {index + 1}/{entries} {answer.get('entry', answer.get('died'))}", file=sys.stderr)


def attempts(calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The calls of one overload to try, plain dtypes first, taken in turn from each combination of dtypes."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for call in calls:
        groups[_dtypes(call)].append(call)
    order = [groups[key] for key in sorted(groups, key=_plainness)]
    rank = 0
    while any(len(group) > rank for group in order):
        yield from (group[rank] for group in order if len(group) > rank)
        rank += 1


def _dtypes(call: dict[str, Any]) -> str:
    found: list[str] = []

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            if "tensor" in value:
                found.append(value["dtype"])
            else:
                for item in value.values():
                    visit(item)
        elif isinstance(value, list):
            for item in value:
                visit(item)

    visit([call["args"], call["kwargs"]])
    return ",".join(found)


def _plainness(dtypes: str) -> tuple[int, int, str]:
    names = dtypes.split(",")
    rank = {"float32": 0, "int64": 1, "bool": 1}
    return max((rank.get(name, 2) for name in names), default=0), len(names), dtypes


def lower_all(recorded: Path, path: Path, wanted: frozenset[str]) -> None:
    """Lower calls of each wanted overload until one succeeds; write one line per overload."""
    by_op: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in read_lines(recorded):
        for call in line["calls"]:
            by_op[call["op"]][json.dumps(call, sort_keys=True)] = call
    done = {line["op"] for line in resume(path)}
    command = [sys.executable, "-m", "tools.op_statuses.lower"]
    todo = sorted((wanted & by_op.keys()) - done)
    with IsolatedWorker(command, time_limit=LOWER_LIMIT, environment=ONE_THREAD) as worker:
        for number, op in enumerate(todo):
            result: dict[str, Any] = {"op": op, "lowered": False, "attempts": 0, "failures": []}
            deaths = 0
            for call in list(attempts(list(by_op[op].values())))[:ATTEMPTS]:
                if deaths == DEATHS:
                    break
                outcome = worker.run(call)
                result["attempts"] += 1
                if outcome.verdict is not Verdict.ANSWERED:
                    failures = [{"stage": outcome.verdict.value, "reason": outcome.detail}]
                    deaths += 1
                elif outcome.answer["lowered"]:
                    result |= {"lowered": True, "way": outcome.answer["way"], "call": call}
                    break
                else:
                    failures = outcome.answer["failures"]
                result["failures"] += [failure for failure in failures if failure not in result["failures"]]
            append_line(path, result)
            print(f"lowered {number + 1}/{len(todo)} {op}: {result['lowered']}", file=sys.stderr)
