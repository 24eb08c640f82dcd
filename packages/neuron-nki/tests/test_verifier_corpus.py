"""Kernels with one mistake each: the verifier names the rule and the line, and nothing else."""

from collections import Counter
from typing import Any

import pytest
from wrong_kernels import machines, memories, operands  # noqa: F401
from wrong_kernels.corpus import CORPUS, Wrong

from torch_neuronx_nki import NkiValidationError, NkiWarning, trace
from torch_neuronx_nki.jit import simulate
from torch_neuronx_nki.verifier.files import Example, check
from torch_neuronx_nki.verifier.findings import Severity
from torch_neuronx_nki.verifier.registry import BY_CODE, REGISTRY, When
from torch_neuronx_nki.verifier.verifier import Verifier

ELSEWHERE = {"ARG001", "COLL001"}
"""Rules whose kernels are in test_launch and test_collectives."""


@pytest.mark.parametrize("wrong", CORPUS, ids=lambda wrong: f"{wrong.code}-{wrong.name}")
def test_the_rule_and_the_line_are_named(wrong: Wrong) -> None:
    result = check(Example(simulate(wrong.kernel, **wrong.settings), wrong.args))
    assert [finding.code for finding in result.findings] == [wrong.code], (result.findings, result.error)
    finding = result.findings[0]
    assert result.error == ""
    assert finding.hint
    assert finding.rule == BY_CODE[wrong.code].rule
    if wrong.code not in ("ARG002", "ARG003"):  # of the call, where no line of the kernel runs
        assert finding.source is not None
        assert (finding.source.file, finding.source.line) == (wrong.kernel.func.__code__.co_filename, wrong.line)


def _seen_in_records(wrong: Wrong) -> bool:
    return REGISTRY[BY_CODE[wrong.code].rule].when is not When.INSTRUCTION and wrong.name not in (
        "adds_to_a_memset",
        "depends_on_what_comes_later",
    )


SEEN_IN_RECORDS = list(filter(_seen_in_records, CORPUS))


@pytest.mark.parametrize("wrong", SEEN_IN_RECORDS, ids=lambda wrong: f"{wrong.code}-{wrong.name}")
@pytest.mark.filterwarnings("ignore::torch_neuronx_nki.NkiWarning")
def test_records_show_the_same(wrong: Wrong) -> None:
    verifier = Verifier(findings=None)
    verifier.collects = True
    simulate(wrong.kernel, verify="off", observers=[verifier.observe], **wrong.settings)(*wrong.args)
    assert [finding.code for finding in verifier.findings.items] == [wrong.code]
    place = verifier.findings.items[0].source
    assert place is not None
    assert place.line == wrong.line


@pytest.mark.parametrize("wrong", SEEN_IN_RECORDS, ids=lambda wrong: f"{wrong.code}-{wrong.name}")
def test_errors_raise_where_it_is_strict_and_warn_elsewhere(wrong: Wrong) -> None:
    entry = BY_CODE[wrong.code]

    def run(mode: str) -> Any:
        return simulate(wrong.kernel, verify=mode, **wrong.settings)(*wrong.args)

    if entry.severity is Severity.NOTE:
        run("strict")
        return
    if entry.severity is Severity.ERROR:
        with pytest.raises(NkiValidationError, match=entry.code) as caught:
            run("strict")
        assert caught.value.rule == entry.rule
        assert caught.value.source.line == wrong.line
    with pytest.warns(NkiWarning, match=f":{wrong.line}: {entry.code}"):
        run("warn")


def test_every_rule_has_a_kernel() -> None:
    count = Counter(wrong.code for wrong in CORPUS)
    assert set(count) | ELSEWHERE == set(BY_CODE)
    assert len(CORPUS) >= 60


def test_a_stream_is_also_checked_by_what_the_simulator_refuses() -> None:
    verifier = Verifier(findings=None)
    verifier.collects = True
    wrong = next(wrong for wrong in CORPUS if wrong.name == "moving_is_too_wide")
    with trace.observe(verifier.observe), pytest.raises(NkiValidationError):
        simulate(wrong.kernel)(*wrong.args)
    assert [finding.code for finding in verifier.findings.items] == ["OPND007"]
