"""The table of statuses: rules first, then what lowered, then what is closest to it."""

from collections.abc import Mapping
from typing import Any

from tools.op_statuses.operators import Operator
from tools.op_statuses.rules import RULES, Follows, Verdict
from torch_neuronx.op_status import OpRecord, OpStatus

HOST = "the host computes it"


class StatusTable:
    """Decides the status of each operator; each is decided once, and what it follows is decided before it."""

    def __init__(self, operators: Mapping[str, Operator], lowered: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the operators and one lowering result each, as `collect` writes them."""
        self._operators = operators
        self._lowered = lowered
        self._decided: dict[str, Verdict] = {}
        self._open: set[str] = set()

    def records(self) -> dict[str, OpRecord]:
        """Every operator's record, by name."""
        return {
            name: OpRecord(verdict.status, verdict.reason)
            for name, verdict in ((name, self.decide(name)) for name in sorted(self._operators))
        }

    def decide(self, name: str) -> Verdict:
        """The status of one operator.

        Raises:
            KeyError: no such operator reaches the backend.
            ValueError: the rules send the operator back to itself.
        """
        if name not in self._decided:
            if name in self._open:
                raise ValueError(f"The rules for {name} lead back to it.")
            self._open.add(name)
            self._decided[name] = self._decide(self._operators[name])
            self._open.remove(name)
        return self._decided[name]

    def _decide(self, operator: Operator) -> Verdict:
        result = self._lowered.get(operator.name)
        if result is not None and result["lowered"] and self._by_layout(operator) is None:
            return Verdict(OpStatus.NATIVE, f"lowers through {result['way']}")
        for rule in RULES:
            found = rule(operator, self._operators)
            if isinstance(found, Verdict):
                return found
            if found is not None:
                return self._follow(operator, found)
        if result is None or "Scalar" in operator.overload:
            sibling = self._sibling(operator)
            if sibling is not None:
                return sibling
        if result is not None:
            return Verdict(OpStatus.FALLBACK, f"{HOST}: {why_not(result)}")
        return Verdict(OpStatus.FALLBACK, f"{HOST}: no lowering is known")

    def _by_layout(self, operator: Operator) -> Verdict | None:
        """What the rules that no lowering can overrule say: layouts and complex numbers."""
        verdicts = (rule(operator, self._operators) for rule in RULES[:2])
        return next((verdict for verdict in verdicts if isinstance(verdict, Verdict)), None)

    def _follow(self, operator: Operator, rule: Follows) -> Verdict:
        needed = {name: self.decide(name) for name in rule.all_of}
        choices = {name: self.decide(name) for name in rule.any_of if name not in self._open}
        for name, verdict in needed.items():
            if verdict.status is not OpStatus.NATIVE:
                return Verdict(verdict.status, f"as {name}: {verdict.reason.removeprefix(f'{HOST}: ')}")
        if choices and all(verdict.status is not OpStatus.NATIVE for verdict in choices.values()):
            name, verdict = next(iter(choices.items()))
            return Verdict(verdict.status, f"as {name}: {verdict.reason.removeprefix(f'{HOST}: ')}")
        return Verdict(OpStatus.NATIVE, rule.reason)

    def _sibling(self, operator: Operator) -> Verdict | None:
        """The status of an overload that lowers and differs in the kind of its arguments only."""
        for name, other in self._operators.items():
            same = other.packet == operator.packet and other.namespace == operator.namespace
            if same and name != operator.name and self._lowered.get(name, {}).get("lowered"):
                return Verdict(OpStatus.NATIVE, f"as {name}, with other kinds of arguments")
        return None


def why_not(result: Mapping[str, Any]) -> str:
    """The most telling of the reasons why no sample of an operator lowered."""
    stages = {failure["stage"]: failure["reason"] for failure in result["failures"]}
    if "crashed" in stages:
        return "lowering it ends the lowering process"
    if "shape" in stages or any("Dynamic" in reason or "DataDependent" in reason for reason in stages.values()):
        return "its result depends on values, not on shapes alone"
    if set(stages) == {"dtype"}:
        return str(stages["dtype"])
    return "torch-mlir has no lowering for it"
