"""What the stages of this package do, as one digest: keys change when the code does, released or not."""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

LIBRARIES = ("torch", "torch-mlir", "jax", "jaxlib", "torch-neuronx", "torch-neuronx-compile")


@cache
def versions() -> dict[str, str]:
    """Return the versions of the libraries that turn a graph into a program, and a digest of this package's sources.

    The digest tells two states of an editable installation apart, which the version does not.
    """
    return {name: metadata.version(name) for name in LIBRARIES} | {"sources": _sources()}


def _sources() -> str:
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
