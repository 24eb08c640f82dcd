"""Private names of torch that the test kit uses. Written for torch 2.13; no public ones exist."""

import sys
from collections.abc import Mapping
from typing import Any

from torch.utils._config_module import ConfigModule  # torch._dynamo.config and its like
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map  # nested arguments and results, with paths

__all__ = ["config_values", "tree_flatten_with_path", "tree_map", "tree_path"]


def tree_path(path: Any) -> str:
    """A path into nested containers as Python would write it: `[0]['x']`."""
    return str(keystr(path))


def config_values(name: str) -> Mapping[str, object] | None:
    """The values of a loaded configuration module of torch, or None if the name is not one of these."""
    module = sys.modules.get(name)
    return module.get_config_copy() if isinstance(module, ConfigModule) else None
