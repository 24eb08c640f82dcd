"""Compares the device with the CPU on every sample of every OpInfo entry.

    python -m tools.opinfo.sweep                   # all dtypes; resumes where it stopped
    python -m tools.opinfo.sweep float32 --only '^linalg' --fresh
    python -m tools.opinfo.sweep --page            # only write docs/opinfo.md from the results

Each dtype's results are JSON lines in `tools/opinfo/results/`, one an entry. A worker process runs the entries, so that
a crash or a hang costs one entry and is recorded.
"""

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.opinfo import page
from tools.opinfo.result_files import ABOUT, RESULTS, pending, read_results, result_file
from torch_neuronx.testing.isolation import IsolatedWorker, Verdict

DTYPES = ("float32", "int64", "bool", "bfloat16", "float16")
TIME_LIMIT = 600.0  # float16 on a loaded CPU is slow


def main() -> int:
    """Run the sweep; the exit code says whether every entry passed."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.opinfo.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dtypes", nargs="*", default=DTYPES, help="dtypes, by default all")
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--import", dest="module", help="module to import for a device that is not loaded by itself")
    parser.add_argument("--only", default="", help="regular expression that an entry's name must contain")
    parser.add_argument("--fresh", action="store_true", help="forget the results of the chosen entries first")
    parser.add_argument("--failed", action="store_true", help="run the entries that did not pass once more")
    parser.add_argument("--page", action="store_true", help="run nothing; write the page from the results")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT, help="seconds for one entry in one dtype")
    options = parser.parse_args()
    if not options.page:
        options.results.mkdir(parents=True, exist_ok=True)
        for dtype in options.dtypes:
            sweep(dtype, options)
        note_versions(options.results, options.device)
    failing = 0
    for dtype in options.dtypes:
        summary = page.summarize(read_results(result_file(options.results, dtype)).values())
        failing += summary.failed
        print(f"{dtype}: {page.describe(summary)}")
    if options.results == RESULTS:
        page.write(Path(__file__).parents[2] / "docs" / "opinfo.md", RESULTS)
    return int(failing > 0)


def note_versions(folder: Path, device: str) -> None:
    """Write down what the results of this run were made with."""
    about = {
        "command": "python -m tools.opinfo.sweep",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "device": device,
        "torch": version("torch"),
    }
    (folder / ABOUT).write_text(json.dumps(about) + "\n")


def sweep(dtype: str, options: argparse.Namespace) -> None:
    """Run the entries of one dtype that have no result yet."""
    from tools.opinfo.entries import EntryResult, entry_names

    path = result_file(options.results, dtype)
    entries = pending(path, entry_names(), options, page.passed)
    command = [sys.executable, "-m", "tools.opinfo.worker", "--device", options.device]
    command += ["--import", options.module] if options.module else []
    with (
        IsolatedWorker(command, time_limit=options.time_limit, environment={"OMP_NUM_THREADS": "1"}) as worker,
        path.open("a") as file,
    ):
        for name, index in entries:
            outcome = worker.run([index, dtype])
            result: dict[str, Any]
            if outcome.verdict is Verdict.ANSWERED:
                result = outcome.answer
            else:
                ended = f"{outcome.verdict.value}: {outcome.detail}"[:400]
                result = asdict(EntryResult(name, dtype, samples=1, failed=1, ended=ended))
            file.write(json.dumps(result) + "\n")
            file.flush()
            if not page.passed(result):
                print(f"{dtype} {name}: {result['ended'] or '; '.join(result['failures'])}"[:300], file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
