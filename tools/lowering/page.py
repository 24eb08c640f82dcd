"""Adds up the sweep's results, and writes the page about them."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.lowering.tolerances import PATTERNS, RELATIVE_TO_LARGEST
from tools.opinfo.result_files import ABOUT, read_results, result_file

ORDER = ("float32", "bfloat16", "float16", "int32", "int64", "bool")

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Summary:
    """One dtype in numbers of entries."""

    entries: int
    """Entries of which a sample runs on the CPU."""
    lowered: int
    wrong: int
    """Entries of which every sample lowers, but not all agree."""
    samples: int
    samples_lowered: int
    rounded: int
    """Of those, samples that differ by rounding only."""
    gradients: int


def applies(result: Result) -> bool:
    """Whether there is anything to lower."""
    return bool(result["ended"]) or int(result["samples"]) > 0


def passed(result: Result) -> bool:
    """Whether every sample lowers and agrees."""
    return not result["ended"] and result["lowered"] == result["samples"]


def wrong(result: Result) -> bool:
    """Whether every sample lowers, but not all agree."""
    return not passed(result) and not result["ended"] and not result["culprits"]


def summarize(results: Iterable[Result]) -> Summary:
    """Add up one dtype's results."""
    found = [result for result in results if applies(result)]
    return Summary(
        entries=len(found),
        lowered=sum(map(passed, found)),
        wrong=sum(map(wrong, found)),
        samples=sum(result["samples"] for result in found),
        samples_lowered=sum(result["lowered"] for result in found),
        rounded=sum(result.get("rounded", 0) for result in found),
        gradients=sum(result["gradients"] for result in found),
    )


def by_limit(results: Iterable[Result], default: int | None) -> dict[int | None, list[Result]]:
    """Results by how many samples of an entry were asked for, all (``None``) first."""
    groups: dict[int | None, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.get("limit", default)].append(result)
    return dict(sorted(groups.items(), key=lambda item: -(item[0] or 1 << 30)))


def describe(summary: Summary) -> str:
    """One line."""
    return (
        f"{summary.lowered} of {summary.entries} entries lower, {summary.wrong} lower with other results; "
        f"{summary.samples_lowered} of {summary.samples} samples agree, {summary.gradients} gradients"
    )


def reason(result: Result) -> str:
    """Why an entry does not pass, in one line."""
    if result["ended"]:
        return str(result["ended"])
    return "; ".join([*(f"{op}: {why}" for op, why in result["culprits"].items()), *result["failures"][:1]])


def culprits(results: Iterable[Result]) -> Iterator[str]:
    """Entries that do not pass, by what keeps them from it, most frequent first."""
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for result in results:
        if applies(result) and not passed(result):
            if result["ended"]:
                groups["(the worker ended)"].append((result["entry"], result["ended"]))
            for op, why in result["culprits"].items():
                groups[op].append((result["entry"], why))
            if result["failures"]:
                groups["(other results)"].append((result["entry"], result["failures"][0]))
    for op, found in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield f"{len(found)} {op}"
        yield from (f"    {entry}: {why[:230]}" for entry, why in found)


def write(path: Path, results: Path, compiled: Path, fuzzed: Path) -> None:
    """Write the page from the results in two folders, of single programs and of ``torch.compile``, and random ones."""
    by_dtype = {dtype: read_results(result_file(results, dtype)) for dtype in ORDER}
    about = json.loads((results / ABOUT).read_text())
    text = [*lines({dtype: found for dtype, found in by_dtype.items() if found}, about)]
    through = read_results(result_file(compiled, "float32"))
    if through:
        text += ["", *compiled_lines(through, json.loads((compiled / ABOUT).read_text())["float32"])]
    text += ["", *fuzzed_lines(json.loads(fuzzed.read_text()))]
    path.write_text("\n".join(text) + "\n")


def fuzzed_lines(runs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The part about random programs."""
    runs = list(runs)
    yield "## Random programs"
    yield ""
    yield "`tools/fuzz` draws programs of up to ten statements over tensors of float32, bfloat16, float16, int32, int64"
    yield "and bool: scalars, empty tensors and others; contiguous, transposed, strided, sliced, expanded, or in one"
    yield "memory; with infinities and NaN in a part of them. Statements compute elementwise, compare, reduce, scan,"
    yield "sort, search, normalise, multiply matrices, convolve, pool, attend, take losses, view, join, index, scatter,"
    yield "and write in place: into results, views of them and arguments. Compared with the CPU are results, arguments"
    yield "afterwards and gradients, of each program compiled as users do, graph breaks allowed."
    yield ""
    yield "Left out is what eager mode leaves open or gets wrong, and what PyTorch's compiler computes in its own way"
    yield "on every device: writes into windows, and where elements share memory; attention of infinities and NaN;"
    yield "linear interpolation and `gelu` of infinities, convolution of them in narrow formats; medians along"
    yield "dimensions of expanded tensors."
    yield ""
    yield "What raises is compiled for the CPU as well, with PyTorch's own `aot_eager`: where that raises the same at"
    yield "the same line, PyTorch itself refuses the program. Another result counts as one whatever the CPU does."
    yield ""
    columns = ("programs", "functions", "graphs", "breaks", "other results or errors", "PyTorch itself refuses")
    yield f"| command | date | {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|---|---|"
    for run in runs:
        yield (
            f"| `{run['command']}` | {run['date']} | {run['cases']} | {len(run['functions'])} | {run['graphs']} "
            f"| {run['breaks']} | {len(run['failures'])} | {len(run['refused'])} |"
        )
    yield ""
    failures, refused = (sum(len(run[what]) for run in runs) for what in ("failures", "refused"))
    found = "none differs" if not failures else f"{failures} differ"
    found += f", PyTorch itself refuses {refused}" if refused else ""
    sources = ": `tools/fuzz/results.json` has their sources" if failures or refused else ""
    yield f"{sum(run['cases'] for run in runs)} programs; {found}{sources}."


def compiled_lines(results: Mapping[str, Result], made: Mapping[str, Any]) -> Iterator[str]:
    """The part about ``torch.compile``."""
    found = [result for result in results.values() if applies(result)]
    refused = sum(not applies(result) and result["refused"] > 0 for result in results.values())
    most = f" --samples {made['samples']}" if made["samples"] else ""
    yield '## float32 through `torch.compile(backend="neuron")`'
    yield ""
    yield "Graphs may break here, as in users' programs: what does not lower runs in eager mode, and the result counts."
    yield f"{sum(map(passed, found))} of {len(found)} entries give what the CPU gives"
    yield f"(`python -m tools.lowering.sweep --through compile{most}`, {made['date']}); {refused} more are refused in"
    yield "eager mode too."
    missing = [result for result in found if not passed(result)]
    if missing:
        yield ""
        yield "| entry | samples | agree | reason |"
        yield "|---|---|---|---|"
        yield from (row(result) for result in missing)


def lines(by_dtype: Mapping[str, Mapping[str, Result]], about: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The page, line by line."""
    yield "# What compiles"
    yield ""
    yield "<!-- Generated by `python -m tools.lowering.sweep --page`; do not edit. -->"
    yield ""
    yield "PyTorch's own operator suite (`torch.testing._internal.common_methods_invocations.op_db`) through the"
    yield "backend `neuron`: each sample is traced with AOT Autograd (without Dynamo), lowered to canonical StableHLO,"
    yield "one program forward and, where the operator has a derivative, one backward, compiled for the emulator, run"
    yield "and compared with the CPU: results, gradients and what was written into arguments. The program holds"
    yield "standard StableHLO and the custom calls that neuronx-cc documents; nothing calls back into ATen. An entry"
    yield "counts as lowered if every sample that runs on the CPU lowers and agrees within the tolerances of"
    yield "`torch.testing.assert_close`. Samples are first tried sixteen at a time as one program; where these do not"
    yield "agree their halves are, down to single samples. An entry is left once eight samples do not agree."
    yield ""
    yield "Compared less tightly, in float32:"
    yield ""
    for pattern, tolerance in PATTERNS:
        yield f"- `{pattern}`: rtol {tolerance.rtol:g}, atol {tolerance.atol:g}; {tolerance.reason}"
    for pattern, bound, why in RELATIVE_TO_LARGEST:
        yield f"- `{pattern}`: {bound:g} of the largest element of each matrix; {why}"
    yield ""
    yield "Where the CPU gives other results for other seeds, the number, the shapes and the dtypes of the results are"
    yield "compared, not the values: the device draws other numbers."
    yield ""
    yield "Of eigenvectors the magnitudes are compared: their signs are nobody's to choose. Of a singular value"
    yield "decomposition compared is what each sample of PyTorch's suite takes for its own comparisons of gradients:"
    yield "the values, the magnitudes of the vectors, and the product `U @ Vh`, which has no signs to choose."
    yield ""
    yield "In float16 and bfloat16 the CPU rounds after every operator, a program where its compiler puts it. Where the"
    yield "two are further apart than the tolerances, both are compared with the same function in float64 on the CPU: a"
    yield "sample agrees if no tensor's largest error is above twice the CPU's plus two units in the last place of the"
    yield "largest element (`tools/lowering/rounding.py`). These samples count as agreeing, and once more as rounded."
    yield "What sorts gives the gradient of equal elements to any of them."
    yield ""
    columns = ("samples of an entry", "entries", "lowered", "with other results", "samples", "agree", "rounded")
    yield f"| dtype | {' | '.join(columns)} | gradients |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for dtype, results in by_dtype.items():
        for most, found in by_limit(results.values(), about[dtype]["samples"]).items():
            total = summarize(found)
            yield (
                f"| {dtype} | {f'the first {most}' if most else 'all'} | {total.entries} | {total.lowered} "
                f"| {total.wrong} | {total.samples} | {total.samples_lowered} | {total.rounded} | {total.gradients} |"
            )
    yield ""
    yield "Made with:"
    yield ""
    for dtype in by_dtype:
        made = about[dtype]
        option = f" --samples {made['samples']}" if made["samples"] else ""
        versions = ", ".join(f"{name} {made[name]}" for name in ("torch", "torch-mlir", "jaxlib"))
        yield f"- `python -m tools.lowering.sweep {dtype}{option}` on {made['date']}, {versions}"
        if "note" in made:
            yield f"  {made['note']}"
    for dtype, results in by_dtype.items():
        missing = [result for result in results.values() if applies(result) and not passed(result)]
        if missing:
            yield ""
            yield f"## {dtype}: what does not lower"
            yield ""
            yield "| entry | samples | agree | reason |"
            yield "|---|---|---|---|"
            yield from (row(result) for result in missing)


def row(result: Result) -> str:
    """One entry that does not pass."""
    text = reason(result)[:240].replace("|", "\\|").replace("`", "'").replace("<", "&lt;")
    return f"| `{result['entry']}` | {result['samples']} | {result['lowered']} | {text} |"
