"""Places of values in rows."""

import torch

SNAKE = 16
"""Partitions that hold a row, one column after the other."""


def places(rows: torch.Tensor, values: torch.Tensor, *, last_slot_first: bool = False) -> torch.Tensor:
    """Return where each of 8 ``values`` occurs in its row: equal values take later occurrences; -1 is nowhere."""
    slots = range(values.shape[1])
    found = torch.full(values.shape, -1, dtype=torch.long)
    open_places = torch.ones(rows.shape, dtype=torch.bool)
    for slot in reversed(slots) if last_slot_first else slots:
        matches = (rows == values[:, slot : slot + 1]) & open_places
        first = matches.float().argmax(1)
        there = matches.any(1)
        found[:, slot] = torch.where(there, first, -1)
        taken = torch.nn.functional.one_hot(first, rows.shape[1]).bool() & there[:, None]
        open_places &= ~taken
    return found


def replaced(rows: torch.Tensor, found: torch.Tensor, value: float) -> torch.Tensor:
    """Return ``rows`` with ``value`` at the places ``found``; -1 is nowhere."""
    wider = torch.cat([rows, rows[:, :1]], 1)
    return wider.scatter(1, torch.where(found < 0, rows.shape[1], found), value)[:, :-1]


def unsnaked(tile: torch.Tensor) -> torch.Tensor:
    """Return rows that are held by 16 partitions each, one column after the other: (partitions / 16, 16 columns)."""
    partitions, columns = tile.shape
    return tile.reshape(partitions // SNAKE, SNAKE, columns).transpose(1, 2).reshape(partitions // SNAKE, -1)


def snaked(rows: torch.Tensor, tile: torch.Tensor) -> torch.Tensor:
    """Return ``tile`` (partitions, columns) with ``rows`` in its first columns, as :func:`unsnaked` reads them."""
    flat = unsnaked(tile)
    flat[:, : rows.shape[1]] = rows
    return flat.reshape(flat.shape[0], -1, SNAKE).transpose(1, 2).reshape(tile.shape)


def bounds(ids: torch.Tensor) -> torch.Tensor:
    """Return start and end of the run of equal ids around each element, (2, n); (n, -1) where the id is 0."""
    count = ids.shape[0]
    position = torch.arange(count)
    changes = torch.ones(count, dtype=torch.bool)
    changes[1:] = ids[1:] != ids[:-1]
    start = torch.where(changes, position, 0).cummax(0).values
    segment = changes.long().cumsum(0) - 1
    lengths = torch.bincount(segment)
    end = start + lengths[segment]
    padding = ids == 0
    return torch.stack([torch.where(padding, count, start), torch.where(padding, -1, end)])
