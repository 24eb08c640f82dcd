"""The one place that asks which distributions are installed; its answers are kept for the process."""

from functools import cache
from importlib import metadata


@cache
def entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of ``group``, in the order in which they are found."""
    return tuple(metadata.entry_points(group=group))


@cache
def version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or ``None``."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
