"""Files about a graph, under the debug directory."""

from pathlib import Path

from torch_neuronx import config


def write_artifact(graph: str, name: str, content: bytes) -> Path:
    """Write one file about ``graph`` and return the folder of that graph."""
    folder = config.get(config.DEBUG_DIR) / graph
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / name).write_bytes(content)
    return folder


def keep_artifact(graph: str, name: str, content: bytes) -> None:
    """Write one file about ``graph`` if the user wants artifacts kept."""
    if config.get(config.PRESERVE_COMPILATION_ARTIFACTS):
        write_artifact(graph, name, content)
