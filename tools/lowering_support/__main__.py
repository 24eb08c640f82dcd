"""Makes the table of operators that lower, which the compiler package ships.

    python -m tools.op_statuses record --work build/op_statuses
    python -m tools.lowering_support --recorded build/op_statuses/recorded.jsonl
    python -m tools.lowering_support --rows '^aten::(all|randperm)'  # after a change that touches only these

The first command records the calls that OpInfo's samples make; the second lowers some of each operator, forward and
backward, and keeps its progress next to the records, where it resumes.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.op_statuses.collect import append_line, attempts, read_lines, resume
from tools.op_statuses.signatures import find_overload
from torch_neuronx.testing.isolation import IsolatedWorker, Verdict
from torch_neuronx_compile.support.table import FORMAT, SHIPPED, read, sources

COMMAND = "python -m tools.lowering_support"
FORWARD_ATTEMPTS = 8
BACKWARD_ATTEMPTS = 4
TIME_LIMIT = 90.0
DEATHS = 2
UNTOLD = "untold"
"""What a call says of a direction that it did not reach."""


def main() -> int:
    """Lower what is recorded and write the table."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recorded", type=Path, default=Path("build/op_statuses/recorded.jsonl"))
    parser.add_argument("--rows", help="regular expression: make only these rows anew, keep the others of the table")
    options = parser.parse_args()
    # Progress made with other sources is not this table's.
    kind = "support" if options.rows is None else "support_rows"
    results = options.recorded.with_name(f"{kind}_{sources()[:12]}.jsonl")
    if options.rows is not None:
        results.unlink(missing_ok=True)
    lower_all(options.recorded, results, options.rows or "")
    table = write_table(results, {} if options.rows is None else read()["ops"])
    refused = sum(row[0] is not None for row in table.values())
    backward = sum(row[0] is None and row[1] is not None for row in table.values())
    print(f"{len(table)} operators: {refused} do not lower, of {backward} more the gradient does not")
    return 0


def lower_all(recorded: Path, path: Path, only: str) -> None:
    """Lower calls of each functional ATen operator until one succeeds in both directions; one line per operator."""
    by_op: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in read_lines(recorded):
        for call in line["calls"]:
            by_op[call["op"]][json.dumps(call, sort_keys=True)] = call
    done = {line["op"] for line in resume(path)}
    todo = sorted(op for op in by_op if op.startswith("aten::") and re.search(only, op) and op not in done)
    todo = [op for op in todo if not find_overload(op)._schema.is_mutable]
    command = [sys.executable, "-m", "tools.lowering_support.call"]
    with IsolatedWorker(command, time_limit=TIME_LIMIT, environment={"OMP_NUM_THREADS": "1"}) as worker:
        for number, op in enumerate(todo):
            row = lower_one(worker, list(attempts(list(by_op[op].values()))))
            append_line(path, {"op": op, **row})
            print(f"{number + 1}/{len(todo)} {op}: {row}", file=sys.stderr)


def lower_one(worker: IsolatedWorker, calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the reasons of one operator."""
    forward: list[str | None] = []
    backward: list[str | None] = []
    detail, deaths = "", 0
    for call in calls[:FORWARD_ATTEMPTS]:
        if deaths == DEATHS or len(backward) == BACKWARD_ATTEMPTS:
            break
        outcome = worker.run(call)
        if outcome.verdict is not Verdict.ANSWERED:
            deaths += 1
            forward.append("its lowering ends the compiler")
            detail = outcome.detail[-200:]
            continue
        answer = outcome.answer
        forward += [answer["forward"]] if answer["forward"] != UNTOLD else []
        backward += [answer["backward"]] if answer["backward"] != UNTOLD else []
        if answer["forward"] is None and (
            answer["backward"] is None or "Error" in answer["detail"] or None in backward
        ):
            break
        detail = answer["detail"] or detail
    return {"forward": _best(forward), "backward": _best(backward), "told": bool(forward), "detail": detail}


def _best(reasons: list[str | None]) -> str | None:
    return None if None in reasons or not reasons else reasons[0]


def write_table(results: Path, kept: Mapping[str, list[str | None]]) -> dict[str, list[str | None]]:
    """Write what was told of each operator, and the rows ``kept`` of others."""
    table = dict(kept)
    for line in read_lines(results):
        if line["told"]:
            gradient = line["backward"]
            table[line["op"]] = [
                line["forward"],
                None if gradient is None else gradient.replace("it has", "that has"),
            ]
    head = {
        "format": FORMAT,
        "metadata": {
            "command": COMMAND,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "torch": version("torch"),
            "torch-mlir": version("torch-mlir"),
            "sources": sources(),
        },
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(table.items()))
    SHIPPED.write_text(f'{json.dumps(head)[:-1]}, "ops": {{\n{lines}\n}}}}\n', encoding="utf-8")
    return table


if __name__ == "__main__":
    sys.exit(main())
