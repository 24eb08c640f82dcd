"""Makes the table of op statuses that the core ships, and its page.

    python -m tools.op_statuses

records what OpInfo's samples reach (`record`), lowers it (`lower`), and writes `ops/statuses.json` (`table`) and
`docs/ops.md` (`page`). The first two steps keep their progress in the work folder and resume there.
"""

import argparse
import json
import os
import sys
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.op_statuses import page
from tools.op_statuses.collect import lower_all, read_lines, record_all
from torch_neuronx.op_status import OpStatus
from torch_neuronx.ops.statuses import SHIPPED_TABLE, load_shipped_table

STEPS = ("record", "lower", "table", "page")
ROOT = Path(__file__).parents[2]
COMMAND = "python -m tools.op_statuses"


def main() -> int:
    """Run the steps that were asked for."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("steps", nargs="*", default=STEPS, choices=[*STEPS, []], help="steps to run, by default all")
    parser.add_argument("--work", type=Path, default=Path("build/op_statuses"), help="folder of intermediate results")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    recorded, lowered = options.work / "recorded.jsonl", options.work / "lowered.jsonl"
    # A failing lowering leaves a reproducer in the temporary folder under one fixed name.
    os.environ["TMPDIR"] = str(options.work.resolve())
    if "record" in options.steps:
        from tools.op_statuses._compat import op_db

        record_all(recorded, len(op_db))
    if "lower" in options.steps:
        lower_all(recorded, lowered, recorded_operators(recorded))
    if "table" in options.steps:
        write_table(recorded, lowered)
    if "page" in options.steps:
        page.write(ROOT / "docs" / "ops.md")
    counts = Counter(record.status for record in load_shipped_table().values())
    print(", ".join(f"{counts[status]} {status}" for status in OpStatus), f"of {counts.total()} operators")
    return 0


def recorded_operators(recorded: Path) -> frozenset[str]:
    """The functional ATen operators that were recorded: the others take the status of these."""
    from tools.op_statuses.signatures import find_overload

    names = {call["op"] for line in read_lines(recorded) for call in line["calls"]}
    aten = {name for name in names if name.startswith("aten::")}
    return frozenset(name for name in aten if not find_overload(name)._schema.is_mutable)


def write_table(recorded: Path, lowered: Path) -> None:
    """Apply the rules and write the shipped table."""
    from tools.op_statuses.operators import operators
    from tools.op_statuses.table import StatusTable

    results = {line["op"]: line for line in read_lines(lowered)}
    table = StatusTable(operators(), results).records()
    document: dict[str, Any] = {
        "format": 1,
        "metadata": {
            "command": COMMAND,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "torch": version("torch"),
            "torch-mlir": version("torch-mlir"),
            "opinfo_entries": len(read_lines(recorded)),
            "lowered": sum(result["lowered"] for result in results.values()),
            "tried": len(results),
        },
        "ops": {name: {"status": record.status, "reason": record.reason} for name, record in table.items()},
    }
    # One operator a line: readable differences between two versions of the table.
    head, ops = {key: value for key, value in document.items() if key != "ops"}, document["ops"]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in ops.items())
    SHIPPED_TABLE.write_text(f'{json.dumps(head)[:-1]}, "ops": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    sys.exit(main())
