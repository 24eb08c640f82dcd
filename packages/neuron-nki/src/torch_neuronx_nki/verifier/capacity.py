"""How much of SBUF and PSUM is in use at once: lifetimes in arrays of integers, a few bytes per allocation."""

from array import array
from dataclasses import dataclass

import numpy as np

from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.targets import PSUM_BANK_BYTES, PSUM_BANKS, QUADRANT
from torch_neuronx_nki.trace import SourceLocation

QUADRANTS = 4


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment at which most of a memory is in use."""

    used: float
    """Bytes per partition of SBUF, banks of PSUM; tensors of fewer partitions count by their quadrants."""
    instruction: int
    tensors: tuple[tuple[int, float], ...]
    """Line numbers, as :meth:`Ledger.line` knows them, and what their tensors take together; the largest first."""


class Ledger:
    """The tensors that a core holds in one memory, each from the first to the last instruction that names it.

    Tensors that the kernel placed by address are not counted: their places are checked instead. A tensor takes the
    quadrants of 32 partitions that it must: 1, 2 or 4. What is reported as too much cannot be placed in program order,
    by any allocator.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.first = array("q")
        self.last = array("q")
        self.size = array("q")
        self.line = array("l")
        self.lines: list[SourceLocation | None] = []
        self._known: dict[SourceLocation | None, int] = {}
        self._numbers: dict[int, int] = {}

    def open(self, demand: int, source: SourceLocation | None) -> int:
        """Enter a tensor that takes ``demand`` and return its place: ``last[place]`` is the caller's to keep."""
        number = self._numbers.get(id(source))
        if number is None:
            number = self._known.get(source)
            if number is None:
                number = self._known[source] = len(self.lines)
                self.lines.append(source)
            if source is self.lines[number]:  # which keeps it, so that no other has its id
                self._numbers[id(source)] = number
        self.first.append(-1)
        self.last.append(-1)
        self.size.append(demand)
        self.line.append(number)
        return len(self.first) - 1

    def demand(self, partitions: int, nbytes: int) -> int:
        """Return what a tensor takes: quadrants times bytes, or times banks."""
        quadrants = 1 if partitions <= QUADRANT else 2 if partitions <= 2 * QUADRANT else QUADRANTS
        return quadrants * (-(-nbytes // PSUM_BANK_BYTES) if self.buffer is Buffer.psum else nbytes)

    def peak(self) -> Peak:
        """Find where most is in use."""
        first, last, size = (np.frombuffer(values, np.int64) for values in (self.first, self.last, self.size))
        used = first >= 0
        if not used.any():
            return Peak(0.0, 0, ())
        line = np.frombuffer(self.line, np.int64)[used]
        first, last, size = first[used], last[used], size[used]
        times = np.concatenate([first, last + 1])
        changes = np.concatenate([size, -size])
        order = np.lexsort((changes, times))  # what ends at an instruction makes room before what begins
        level = np.cumsum(changes[order])
        at = int(np.argmax(level))
        moment = int(times[order][at])
        live = (first <= moment) & (last >= moment)
        totals: dict[int, float] = {}
        for number, amount in zip(line[live].tolist(), size[live].tolist(), strict=True):
            totals[number] = totals.get(number, 0.0) + amount / QUADRANTS
        largest = sorted(totals.items(), key=lambda item: -item[1])
        return Peak(float(level[at]) / QUADRANTS, moment, tuple(largest[:3]))


def limit_of(buffer: Buffer, sbuf_bytes: int) -> int:
    """Return bytes per partition of SBUF, or banks of PSUM."""
    return PSUM_BANKS if buffer is Buffer.psum else sbuf_bytes
