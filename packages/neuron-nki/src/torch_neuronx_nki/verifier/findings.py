"""What the verifier finds, and what happens then."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from torch_neuronx_nki.trace import SourceLocation


class Severity(StrEnum):
    """``ERROR``: the chip or its compiler refuses the kernel, or its result is not defined; ``WARNING``: that may be;
    ``NOTE``: worth a look, and only in reports."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a line of a kernel breaks."""

    code: str
    """Code of the rule, such as ``SBUF001``."""
    rule: str
    """Its name, such as ``sbuf-capacity``."""
    severity: Severity
    message: str
    limit: Any
    actual: Any
    hint: str
    source: SourceLocation | None
    kernel: str = ""

    def text(self) -> str:
        """Return one paragraph: place, code, what, limit and actual value, hint."""
        where = f"{self.source.file}:{self.source.line}: " if self.source is not None else ""
        return (
            f"{where}{self.code} {self.message} (limit {plain(self.limit)}, actual {plain(self.actual)}). {self.hint} "
            f"[{self.rule}]"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        made = asdict(self)
        made["severity"] = str(self.severity)
        made["limit"], made["actual"] = plain(self.limit), plain(self.actual)
        return made


@dataclass(slots=True)
class Findings:
    """Findings in the order in which they were made; a rule is reported once per line."""

    kernel: str = ""
    items: list[Finding] = field(default_factory=list)
    _seen: set[tuple[str, SourceLocation | None]] = field(default_factory=set)

    def add(self, finding: Finding) -> bool:
        """Keep ``finding`` unless its rule and line are known; say whether it is new."""
        key = (finding.rule, finding.source)
        if key in self._seen:
            return False
        self._seen.add(key)
        self.items.append(finding)
        return True


def plain(value: Any) -> Any:
    """Return ``value`` as numbers, text and lists of them."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple | list | frozenset | set):
        return [plain(item) for item in (sorted(value, key=str) if isinstance(value, frozenset | set) else value)]
    return getattr(value, "name", None) or str(value)
