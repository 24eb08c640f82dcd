"""Counts the operators that ran on the CPU, and says so when the program ends."""

import atexit
import sys
from collections import Counter
from dataclasses import dataclass, field

from torch_neuronx.events import OpFellBack


@dataclass
class FallbackReport:
    """Calls that ran on the CPU, by operator."""

    calls: Counter[str] = field(default_factory=Counter)

    def add(self, event: OpFellBack) -> None:
        """Count one event; the first one arranges for the report."""
        if not self.calls:
            atexit.register(self.write)
        self.calls[event.op] += event.calls

    def lines(self) -> list[str]:
        """Return a line for each operator, the most frequent first."""
        return [f"neuron-lab: {op} ran on the CPU, {count} calls" for op, count in self.calls.most_common()]

    def write(self) -> None:
        """Write the report to stderr."""
        print(*self.lines(), sep="\n", file=sys.stderr)
