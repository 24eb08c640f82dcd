"""Device memory: statistics, limits, snapshots. Sizes are bytes.

A core's memory is cached in segments, so that at all times reserved >= allocated >= active. The statistics are
``torch.accelerator``'s, under the names that ``torch.cuda`` has for them.
"""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from torch_neuronx import _C
from torch_neuronx.device.cores import Device, device_index, is_initialized
from torch_neuronx.device.properties import get_device_properties


def memory_stats(device: Device = None) -> dict[str, int]:
    """Return every statistic of a core, with CUDA's keys: ``allocated_bytes.all.current``, ``num_ooms``, ...

    All are zero while the device is not open.
    """
    return dict(torch.accelerator.memory_stats(device_index(device)))


def _stat(key: str, device: Device) -> int:
    return memory_stats(device).get(key, 0)


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that live tensors hold, sizes rounded as the allocator rounds them."""
    return _stat("allocated_bytes.all.current", device)


def max_memory_allocated(device: Device = None) -> int:
    """Return the peak of :func:`memory_allocated` since the start or :func:`reset_peak_memory_stats`."""
    return _stat("allocated_bytes.all.peak", device)


def memory_reserved(device: Device = None) -> int:
    """Return the bytes of all segments, used and cached."""
    return _stat("reserved_bytes.all.current", device)


def max_memory_reserved(device: Device = None) -> int:
    """Return the peak of :func:`memory_reserved` since the start or :func:`reset_peak_memory_stats`."""
    return _stat("reserved_bytes.all.peak", device)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free and the total memory of a core."""
    index = device_index(device)
    if not is_initialized():
        total = get_device_properties(index).total_memory
        return total, total
    free, total = torch.accelerator.get_memory_info(index)
    return free, total


def empty_cache() -> None:
    """Give segments without a live block back to the runtime, on every core."""
    torch.accelerator.empty_cache()


def reset_peak_memory_stats(device: Device = None) -> None:
    """Start the peaks of a core over from the present values."""
    if is_initialized():
        torch.accelerator.reset_peak_memory_stats(device_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Start the accumulated counts (``allocated``, ``freed``) of a core over from zero."""
    if is_initialized():
        torch.accelerator.reset_accumulated_memory_stats(device_index(device))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let this process reserve at most ``fraction`` (0 to 1) of a core's memory.

    Raises :class:`ValueError` for another fraction.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"A fraction of the memory is a number from 0 to 1, not {fraction}.")
    index = device_index(device)
    torch.neuron.init()  # type: ignore[attr-defined]
    _C.set_memory_limit(index, int(fraction * get_device_properties(index).total_memory))


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return the statistics of a core as a table for people; ``abbreviated`` leaves the pools out."""
    index = device_index(device)
    stats = memory_stats(index)
    free, total = mem_get_info(index)
    rows: list[tuple[str, str, Callable[[int], str]]] = [
        ("Allocated memory", "allocated_bytes", _bytes),
        ("Active memory", "active_bytes", _bytes),
        ("Requested memory", "requested_bytes", _bytes),
        ("Reserved memory", "reserved_bytes", _bytes),
        ("Cached, in split segments", "inactive_split_bytes", _bytes),
        ("Allocations", "allocation", str),
        ("Segments", "segment", str),
    ]
    pools = (
        [("all", "")] if abbreviated else [("all", ""), ("small_pool", "  small pool"), ("large_pool", "  large pool")]
    )
    lines = [
        f"neuron:{index} ({get_device_properties(index).name}): {_bytes(free)} free of {_bytes(total)}, "
        f"{stats.get('num_ooms', 0)} out of memory, {stats.get('num_alloc_retries', 0)} cache flushes",
        f"{'':28}{'current':>14}{'peak':>14}{'total in':>14}{'total out':>14}",
    ]
    for title, key, show in rows:
        for pool, label in pools:
            values = [show(stats.get(f"{key}.{pool}.{kind}", 0)) for kind in ("current", "peak", "allocated", "freed")]
            lines.append(f"{label or title:28}" + "".join(f"{value:>14}" for value in values))
    return "\n".join(lines)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def memory_snapshot() -> list[Mapping[str, Any]]:
    """Return every segment of every core with its blocks, in the form of ``torch.cuda.memory_snapshot``."""
    segments: list[Mapping[str, Any]] = _snapshot()["segments"]
    return segments


def _snapshot() -> dict[str, Any]:
    """Return segments and history, in the form that PyTorch's memory visualizer reads."""
    result: dict[str, Any] = _C.memory_snapshot()
    return result


def _record_memory_history(
    enabled: Literal["all", "state"] | None = "all",
    context: Literal["all", "alloc", "state"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = 1_000_000,
) -> None:
    """Record allocations and frees for :func:`_snapshot`; ``enabled=None`` stops. As ``torch.cuda.memory``'s.

    Python frames are recorded unless ``context`` is ``None``.
    """
    _C.record_memory_history(
        enabled=enabled is not None, max_entries=max_entries if enabled == "all" else 0, stacks=context is not None
    )


def _dump_snapshot(filename: str | Path = "dump_snapshot.pickle") -> None:
    """Write :func:`_snapshot` to a file that https://pytorch.org/memory_viz opens."""
    with Path(filename).open("wb") as file:
        pickle.dump(_snapshot(), file)
