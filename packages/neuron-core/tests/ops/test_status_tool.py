"""The tool that makes the table of op statuses: its rules, and its steps on a small part of OpInfo."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx.op_status import OpStatus
from torch_neuronx.ops.statuses import load_shipped_table

pytest.importorskip("tools.op_statuses", reason="the tools are in the repository, not in the distribution")

from tools.op_statuses import collect
from tools.op_statuses._compat import op_db
from tools.op_statuses.operators import operators
from tools.op_statuses.table import StatusTable

OPERATORS = operators()


def table(**lowered: bool) -> StatusTable:
    """A table for which the named functional operators lowered or did not; `__` stands for the dot of an overload."""
    results: dict[str, dict[str, Any]] = {}
    for key, value in lowered.items():
        name = f"aten::{key.replace('__', '.')}"
        failures = [] if value else [{"stage": "lowering", "reason": "failed to legalize"}]
        results[name] = {"lowered": value, "way": "torch-mlir", "failures": failures}
    return StatusTable(OPERATORS, results)


def test_what_lowers_is_native_and_its_variants_with_it() -> None:
    native = table(erf=True)
    for name in ("erf", "erf_", "erf.out", "_foreach_erf", "_foreach_erf_", "_foreach_erf.out"):
        assert native.decide(f"aten::{name}").status is OpStatus.NATIVE, name
    fallback = table(erf=False)
    for name in ("erf", "erf_", "erf.out", "_foreach_erf", "_foreach_erf_", "_foreach_erf.out"):
        verdict = fallback.decide(f"aten::{name}")
        assert verdict.status is OpStatus.FALLBACK, name
        assert "torch-mlir has no lowering for it" in verdict.reason


def test_a_sum_of_operators_is_native_only_if_each_part_is() -> None:
    parts = {"convolution": True, "flip": True, "sum__dim_IntList": True}
    name = "aten::convolution_backward"
    assert table(**parts).decide(name).status is OpStatus.NATIVE
    for part in parts:
        verdict = table(**{**parts, part: False}).decide(name)
        assert verdict.status is OpStatus.FALLBACK
        assert f"aten::{part.replace('__', '.')}" in verdict.reason


@pytest.mark.parametrize("name", ["aten::_to_sparse", "aten::quantize_per_tensor", "aten::complex"])
def test_no_lowering_brings_back_a_layout_or_complex_numbers(name: str) -> None:
    verdict = table(**{name.removeprefix("aten::"): True}).decide(name)
    assert verdict.status is not OpStatus.NATIVE


def test_the_reason_says_how_lowering_failed() -> None:
    def reason(stage: str, text: str = "") -> str:
        result = {"lowered": False, "failures": [{"stage": stage, "reason": text}]}
        return StatusTable(OPERATORS, {"aten::nonzero": result}).decide("aten::nonzero").reason

    assert "ends the lowering process" in reason("crashed", "signal 11")
    assert "depends on values" in reason("shape")
    assert "depends on values" in reason("trace", "DynamicOutputShapeException: aten.nonzero.default")


def test_the_rules_decide_every_operator() -> None:
    records = StatusTable(OPERATORS, {}).records()
    assert records.keys() == OPERATORS.keys() == load_shipped_table().keys()
    assert all(record.reason for record in records.values())


def test_plain_dtypes_are_tried_first_and_kinds_in_turn() -> None:
    def call(dtype: str, size: int) -> dict[str, Any]:
        return {"op": "aten::erf", "args": [{"tensor": [size], "stride": [1], "dtype": dtype}], "kwargs": {}}

    calls = [call("complex64", 1), call("int64", 1), call("float32", 1), call("float32", 2)]
    assert list(collect.attempts(calls)) == [calls[2], calls[1], calls[0], calls[3]]


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "recorded.jsonl"
    path.write_text('{"index": 0, "calls": []}\n{"index": 1, "cal')
    assert [line["index"] for line in collect.resume(path)] == [0]
    collect.append_line(path, {"index": 1, "calls": []})
    assert [line["index"] for line in collect.read_lines(path)] == [0, 1]


def test_records_and_lowers_with_processes_that_may_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_mlir", reason="lowering needs torch-mlir")
    monkeypatch.setenv("PYTHONPATH", ":".join(path for path in sys.path if path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    recorded, lowered = tmp_path / "recorded.jsonl", tmp_path / "lowered.jsonl"
    wanted = {entry.name: index for index, entry in enumerate(op_db) if entry.name in {"trunc", "nonzero"}}
    others = [{"index": index, "calls": []} for index in range(len(op_db)) if index not in wanted.values()]
    recorded.write_text("".join(json.dumps(line) + "\n" for line in others))
    collect.record_all(recorded, len(op_db))
    collect.lower_all(recorded, lowered, frozenset({"aten::trunc", "aten::nonzero"}))
    results = {line["op"]: line for line in collect.read_lines(lowered)}
    assert results["aten::trunc"]["lowered"]
    assert not results["aten::nonzero"]["lowered"]
    assert results["aten::nonzero"]["failures"]
