"""What the simulator knows of tiles besides their elements, so that it does less.

On the chip a transpose passes through PSUM: the tensor engine writes it there, and a copy takes it to SBUF, where the
next product reads it as its stationary side, that is, turned back. The simulator notes what such tiles are to be, and
writes them when somebody asks. It keeps the float32 elements of tiles of narrow types that products read all over.

Whoever asks for the elements of a tile, to read or to write them, has what is still to be written of it, or from it,
written first, and all notes dropped (:meth:`torch_neuronx_nki.machine.Memory.settle`). Only a transpose, the copy out
of PSUM and a product ask here instead.
"""

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from torch_neuronx_nki.machine import Memory
from torch_neuronx_nki.tensors import Layout, NkiTensor, view_of

_MAX_VIEWS = 256


class Columns:
    """What adjacent elements of every partition of a tile are to be."""

    __slots__ = ("count", "layout", "offset", "rows", "source")

    def __init__(self, count: int, view: NkiTensor) -> None:
        self.count = count
        self.rows = _elements(view)
        """Their transpose (elements, partitions), a view of ``source``; ``layout`` and ``offset`` are its."""
        self.source = view.memory
        self.layout = view.layout
        self.offset = view.offset


class Notes:
    """What is noted of one tile. Either there is something to be written to it, or from it to others."""

    __slots__ = ("asked", "columns", "end", "readers", "views", "wide")

    def __init__(self) -> None:
        self.columns: dict[int, Columns] = {}
        """By first element: what is still to be written."""
        self.end = 0
        """No columns reach beyond."""
        self.readers: list[weakref.ref[Memory]] = []
        """Tiles of which columns are to be written from this one."""
        self.asked = 0
        """Of a narrow type: elements that products have asked for, or will, while nobody has written to the tile."""
        self.wide: torch.Tensor | None = None
        """The memory in float32, once as many have been asked for as there are."""
        self.views: dict[Any, torch.Tensor] = {}
        """Views of it, by layout and offset."""

    def settle(self, memory: Memory) -> None:
        """Write what is to be written; ``memory`` is the tile's."""
        for first, columns in self.columns.items():
            shape = (memory.shape[0], columns.count)
            view_of(memory, shape, (memory.row, 1), first, memory.codec).located.copy_(columns.rows.t())
        for reference in self.readers:
            reader = reference()
            if reader is not None and reader.notes is not None:
                reader.settle()


def can_hold(tile: NkiTensor) -> bool:
    """Whether a view names adjacent elements of partitions from the first one on, of which can be noted what they are.

    It depends on the layout only; whether they are all partitions is left to the functions that note.
    """
    return tile.layout.run > 0 and tile.partition == 0 and tile.indirection is None


def transpose(dst: NkiTensor, data: NkiTensor) -> bool:
    """Note that ``dst``, which can hold it, is ``data`` transposed. False: it has to be written now."""
    source = data.memory
    if dst.memory is source or data.codec is not source.codec or not _of_all_partitions(dst):
        return False
    run = dst.layout.run
    _note(dst, run, source, ((dst.offset, Columns(run, data)),))
    assert source.notes is not None
    source.notes.asked += run * data.shape[1]
    return True


def copy(dst: NkiTensor, src: NkiTensor) -> bool:
    """Note that ``dst`` is ``src``, where that is known of all of it and both can hold it. False: write it now."""
    memory, notes = dst.memory, src.memory.notes
    first, run = src.offset, src.layout.run
    if notes is None or not notes.columns or run != dst.layout.run:
        return False
    if not _of_all_partitions(dst) or not _of_all_partitions(src):
        return False
    shift, end, known = dst.offset - first, first + run, 0
    parts = []
    source = None
    for at, part in notes.columns.items():
        if first <= at and at + part.count <= end:
            known += part.count
            source = part.source if source is None or source is part.source else memory
            parts.append((at + shift, part))
    if known != run or source is None or source is memory:
        return False
    _note(dst, run, source, parts)
    return True


def stationary(tile: NkiTensor) -> torch.Tensor:
    """Return the float32 elements of a tile of two dimensions, transposed."""
    notes = tile.memory.notes
    if notes is not None and notes.columns:
        columns = notes.columns.get(tile.offset)
        if columns is not None and tile.layout.run == columns.count and _of_all_partitions(tile):
            if tile.codec.carrier is torch.float32:
                return columns.rows
            of_source = columns.source.notes
            assert of_source is not None
            wide = _wide(of_source, columns.source, columns.layout, columns.offset)
            return tile.codec.load(columns.rows) if wide is None else wide
    return moving(tile).t()


def moving(tile: NkiTensor) -> torch.Tensor:
    """Return the float32 elements of a tile, which the caller does not write to."""
    values = _elements(tile)
    if tile.codec.carrier is torch.float32:
        return values
    memory = tile.memory
    if tile.codec is not memory.codec:
        return tile.codec.load(values)
    notes = memory.notes
    if notes is None:
        notes = memory.notes = Notes()
    wide = _wide(notes, memory, tile.layout, tile.offset)
    if wide is not None:
        return wide
    notes.asked += values.numel()
    return tile.codec.load(values)


def _of_all_partitions(tile: NkiTensor) -> bool:
    layout, memory = tile.layout, tile.memory
    return layout.shape[0] == memory.shape[0] and layout.codec is memory.codec and layout.strides[0] > 0


def _elements(tile: NkiTensor) -> torch.Tensor:
    """Return the elements of a tile for one that reads them; what is noted stays."""
    memory = tile.memory
    if memory.notes is not None and memory.notes.columns:
        memory.settle()
    if memory.unwritten is not None:
        memory.poison()
    return tile.located


def _wide(notes: Notes, memory: Memory, layout: Layout, offset: int) -> torch.Tensor | None:
    """Return a view of ``memory`` in float32, if as much of it has been asked for as to be worth all of it."""
    wide = notes.wide
    if wide is None:
        if notes.asked < memory.row * memory.shape[0]:
            return None
        assert memory.flat is not None
        wide = notes.wide = memory.codec.load(memory.flat)
    key = (layout, offset)
    view = notes.views.get(key)
    if view is None:
        if len(notes.views) >= _MAX_VIEWS:
            notes.views.clear()
        view = notes.views[key] = torch.as_strided(wide, layout.shape, layout.physical, offset + layout.shift)
    return view


def _note(dst: NkiTensor, run: int, source: Memory, parts: Iterable[tuple[int, Columns]]) -> None:
    """Note ``run`` elements of every partition, from that of ``dst`` on, in parts that are all views of ``source``."""
    memory, first = dst.memory, dst.offset
    notes, end = memory.notes, first + run
    if notes is not None and (notes.readers or (first < notes.end and not _replaced(notes, first, end))):
        memory.settle()
        notes = None
    if memory.unwritten is not None:
        memory.write(dst.layout, first, memory.codec)
    if notes is None:
        notes = memory.notes = Notes()
    notes.columns.update(parts)
    if end > notes.end:
        notes.end = end
    origin = source.notes
    if origin is None:
        origin = source.notes = Notes()
    readers = origin.readers
    if not readers or readers[-1]() is not memory:
        readers.append(weakref.ref(memory))


def _replaced(notes: Notes, first: int, end: int) -> bool:
    """Drop the columns between ``first`` and ``end``. False, with all of them kept, where some are cut in two."""
    within = []
    for at, columns in notes.columns.items():
        last = at + columns.count
        if at < end and first < last:
            if at < first or last > end:
                return False
            within.append(at)
    for at in within:
        del notes.columns[at]
    return True
