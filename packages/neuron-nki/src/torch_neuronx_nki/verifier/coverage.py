"""Which elements of an allocation have been touched: a set of strided views, and a mask where the views are many."""

from typing import Any

import numpy as np

View = tuple[tuple[int, ...], tuple[int, ...], int, int]
"""Shape, strides, offset and bytes per element; strides and offset count elements, from the start of the allocation."""

_MAX_REMEMBERED = 512


class Coverage:
    """The elements of one allocation that some instruction has touched. Its size does not grow with their number."""

    __slots__ = ("_counted", "_mask", "_pending", "_room", "elements", "full", "itemsize", "known")

    def __init__(self, elements: int, itemsize: int, *, full: bool = False) -> None:
        self.elements = elements
        self.itemsize = itemsize
        self.full = full
        """Whether all elements are covered."""
        self.known: set[Any] = set()
        """Keys of views that are covered: what the caller need not ask again."""
        self._mask: np.ndarray | None = None
        self._pending: list[View] = []
        self._counted = 0
        self._room = max(64, min(4096, elements // 1024))

    def add(self, view: View, key: Any = None) -> None:
        """Cover the elements of ``view``."""
        if self.full:
            return
        counted = in_units(view, self.itemsize)
        if counted is None:  # parts of elements: say too much rather than too little
            counted = _range(view, self.itemsize, self.elements)
        count = 1
        for size, stride in zip(counted[0], counted[1], strict=True):
            count *= size if stride else 1
        if count >= self.elements:
            self._fill()
            return
        self._remember(view if key is None else key)
        self._pending.append(counted)
        self._counted += count
        if self._counted >= self.elements:
            mask = self._painted()
            self._counted = int(mask.sum())
            if self._counted == self.elements:
                self._fill()
        elif len(self._pending) > self._room:
            self._painted()

    def covers(self, view: View, key: Any = None) -> bool:
        """Whether every element of ``view`` is covered. A view of parts of elements is taken to be."""
        if self.full or (view if key is None else key) in self.known:
            return True
        counted = in_units(view, self.itemsize)
        if counted is not None and not bool(strided(self._painted(), counted).all()):
            return False
        self._remember(view if key is None else key)
        return True

    def touches(self, view: View) -> bool:
        """Whether any element of ``view`` is covered."""
        if self.full:
            return True
        if self._mask is None and not self._pending:
            return False
        counted = in_units(view, self.itemsize) or _range(view, self.itemsize, self.elements)
        return bool(strided(self._painted(), counted).any())

    def remove(self, rows: slice, columns: slice, row: int) -> bool:
        """Uncover a rectangle of rows of ``row`` elements, and say whether any of it was covered."""
        mask = self._painted().reshape(-1, row)
        part = mask[rows, columns]
        if not part.any():
            return False
        part[...] = False
        self.full = False
        self.known.clear()
        self._counted = int(mask.sum())
        return True

    def count(self) -> int:
        """Return how many elements are covered."""
        return self.elements if self.full else int(self._painted().sum())

    def _fill(self) -> None:
        self.full = True
        self.known.clear()
        self._pending.clear()
        self._mask = None

    def _remember(self, key: Any) -> None:
        if len(self.known) >= _MAX_REMEMBERED:
            self.known.clear()
        self.known.add(key)

    def _painted(self) -> np.ndarray:
        mask = self._mask
        if mask is None:
            mask = self._mask = np.full(self.elements, self.full, dtype=np.bool_)
        for view in self._pending:
            strided(mask, view)[...] = True
        self._pending.clear()
        return mask


def in_units(view: View, itemsize: int) -> View | None:
    """Return ``view`` counted in elements of ``itemsize`` bytes, or None where it names parts of them."""
    shape, strides, offset, own = view
    if own == itemsize:
        return view
    if own > itemsize:
        ratio = own // itemsize
        return (*shape, ratio), (*(stride * ratio for stride in strides), 1), offset * ratio, itemsize
    ratio = itemsize // own
    if strides[-1] != 1 or shape[-1] % ratio or offset % ratio or any(stride % ratio for stride in strides[:-1]):
        return None
    return (
        (*shape[:-1], shape[-1] // ratio),
        (*(stride // ratio for stride in strides[:-1]), 1),
        offset // ratio,
        itemsize,
    )


def span(view: View) -> tuple[int, int]:
    """Return the first byte that ``view`` touches in its allocation, and one past the last."""
    shape, strides, offset, itemsize = view
    low = high = offset
    for size, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += stride * (size - 1)
        else:
            high += stride * (size - 1)
    return low * itemsize, (high + 1) * itemsize


def overlap(one: View, other: View) -> bool:
    """Whether two views of an allocation share an element."""
    first, end = span(one)
    first_of_other, end_of_other = span(other)
    low, high = min(first, first_of_other), max(end, end_of_other)
    if end <= first_of_other or end_of_other <= first:
        return False
    unit = min(one[3], other[3])
    touched = Coverage((high - low) // unit, unit)
    touched.add(_shifted(one, low))
    return touched.touches(_shifted(other, low))


def _shifted(view: View, low: int) -> View:
    shape, strides, offset, itemsize = view
    return shape, strides, offset - low // itemsize, itemsize


def _range(view: View, itemsize: int, elements: int) -> View:
    low, high = span(view)
    first, end = low // itemsize, min(-(-high // itemsize), elements)
    return (end - first,), (1,), first, itemsize


def strided(mask: np.ndarray, view: View) -> np.ndarray:
    """Return ``view`` of a mask of one byte per element."""
    shape, strides, offset, _ = view
    return np.ndarray(shape, np.bool_, mask, offset, strides)  # much quicker than stride_tricks.as_strided
