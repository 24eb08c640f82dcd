"""Makes installed distributions for tests: real metadata and modules in a folder."""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path


def install(
    folder: Path,
    name: str,
    entry_points: Mapping[str, str],
    modules: Mapping[str, str],
    group: str,
    version: str = "1.0",
) -> None:
    """Write a distribution into ``folder``: its metadata, with ``entry_points`` of one ``group``, and its modules."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{entry} = {value}" for entry, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)


def entry_points(folder: Path, group: str) -> list[metadata.EntryPoint]:
    """Return the entry points that distributions in ``folder`` have in ``group``."""
    found = metadata.distributions(path=[str(folder)])
    return [point for distribution in found for point in distribution.entry_points if point.group == group]
