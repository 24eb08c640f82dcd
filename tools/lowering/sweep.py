"""Lowers every sample of every OpInfo entry to StableHLO, forward and backward, and compares with the CPU.

    python -m tools.lowering.sweep                      # float32, all samples; resumes where it stopped
    python -m tools.lowering.sweep --quick --results F  # the first three samples, results in folder F
    python -m tools.lowering.sweep bfloat16 int64 --samples 3
    python -m tools.lowering.sweep --only '^linalg' --fresh --failed
    python -m tools.lowering.sweep --through compile --samples 1
    python -m tools.lowering.sweep --culprits           # run nothing; list what does not lower, by culprit
    python -m tools.lowering.sweep --page               # run nothing; write docs/lowering.md from the results

Each dtype's results are JSON lines in `tools/lowering/results/`, one an entry. Worker processes run the entries, so
that a crash or a hang costs one entry and is recorded.
"""

import argparse
import json
import queue
import sys
import tempfile
import threading
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.lowering import page
from tools.opinfo.result_files import ABOUT, pending, read_results, result_file
from torch_neuronx.testing.isolation import IsolatedWorker, Verdict

RESULTS = Path(__file__).parent / "results"
COMPILED = RESULTS / "compile"
TIME_LIMIT = 900.0


def main() -> int:
    """Run the sweep; the exit code says whether every entry of the chosen dtypes lowers."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.lowering.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dtypes", nargs="*", default=["float32"], help="dtypes, by default float32")
    parser.add_argument("--only", default="", help="regular expression that an entry's name must contain")
    parser.add_argument("--samples", type=int, help="at most so many samples of an entry")
    parser.add_argument("--quick", action="store_const", dest="samples", const=3, help="the same as --samples 3")
    parser.add_argument("--fresh", action="store_true", help="forget the results of the chosen entries first")
    parser.add_argument("--failed", action="store_true", help="run the entries that did not pass once more")
    parser.add_argument("--culprits", action="store_true", help="run nothing; list what does not lower, by culprit")
    parser.add_argument("--page", action="store_true", help="run nothing; write the page from the results")
    parser.add_argument(
        "--through",
        choices=("aot", "compile"),
        default="aot",
        help="one program each way, or graphs with breaks",
    )
    parser.add_argument("--results", type=Path, help=f"folder, by default {RESULTS.name}/, {COMPILED.name}/ in it")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--batch", type=int, default=16, help="samples that are first tried as one program")
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT, help="seconds for one entry in one dtype")
    options = parser.parse_args()
    options.results = options.results or (COMPILED if options.through == "compile" else RESULTS)
    if options.page:
        root = Path(__file__).parents[2]
        page.write(root / "docs" / "lowering.md", options.results, COMPILED, root / "tools" / "fuzz" / "results.json")
        return 0
    if not options.culprits:
        options.results.mkdir(parents=True, exist_ok=True)
        for dtype in options.dtypes:
            sweep(dtype, options)
    missing = 0
    for dtype in options.dtypes:
        results = read_results(result_file(options.results, dtype))
        if options.culprits:
            print("\n".join(page.culprits(results.values())))
        summary = page.summarize(results.values())
        missing += summary.entries - summary.lowered
        print(f"{dtype}: {page.describe(summary)}")
    return int(missing > 0)


def note_versions(folder: Path, dtype: str, samples: int | None) -> None:
    """Write down what the results of one dtype were made with."""
    path = folder / ABOUT
    about = json.loads(path.read_text()) if path.exists() else {}
    about[dtype] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "samples": samples,
        **{name: version(name) for name in ("torch", "torch-mlir", "jaxlib")},
    }
    path.write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")


def sweep(dtype: str, options: argparse.Namespace) -> None:
    """Run the entries of one dtype that have no result yet."""
    from tools.opinfo.entries import entry_names

    path = result_file(options.results, dtype)
    waiting: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    for entry in pending(path, entry_names(), options, page.passed):
        waiting.put(entry)
    lock = threading.Lock()
    threads = [threading.Thread(target=_run, args=(waiting, lock, path, dtype, options)) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    note_versions(options.results, dtype, options.samples)


def _run(
    waiting: queue.SimpleQueue[tuple[str, int]],
    lock: threading.Lock,
    path: Path,
    dtype: str,
    options: argparse.Namespace,
) -> None:
    from tools.lowering.entries import LoweringResult

    command = [sys.executable, "-m", "tools.lowering.worker"]
    with tempfile.TemporaryDirectory() as private:
        environment = {
            "OMP_NUM_THREADS": "1",
            "TORCH_NEURONX_DEBUG_DIR": f"{private}/debug",
            "TORCH_NEURONX_NEFF_CACHE_DIR": f"{private}/neff",
            "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": f"{private}/local",
        }
        # A sweep runs with the least priority: on a busy machine the start takes minutes.
        limits = {"time_limit": options.time_limit, "start_limit": options.time_limit}
        with IsolatedWorker(command, **limits, environment=environment) as worker:
            while True:
                try:
                    name, index = waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = worker.run([index, dtype, options.samples, options.batch, options.through])
                result: dict[str, Any]
                if outcome.verdict is Verdict.ANSWERED:
                    result = outcome.answer
                else:
                    ended = f"{outcome.verdict.value}: {outcome.detail}"[:400]
                    result = asdict(LoweringResult(name, dtype, samples=1, limit=options.samples, ended=ended))
                with lock:
                    with path.open("a") as file:
                        file.write(json.dumps(result) + "\n")
                    if not page.passed(result):
                        print(f"{dtype} {name}: {page.reason(result)}"[:300], file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
