"""Names of models and graphs: ``{model_name}_{aot_id}_{graph_type}_{nth}``."""

import itertools
import threading
from collections import Counter

from torch_neuronx_compile.unit import GraphKind

DEFAULT_MODEL_NAME = "model_default"

_lock = threading.Lock()
_model_name = DEFAULT_MODEL_NAME
_aot_ids = itertools.count()


def set_model_name(name: str) -> None:
    """Set the model name of graphs that are compiled from now on."""
    global _model_name
    check_model_name(name)
    with _lock:
        _model_name = name


def check_model_name(name: str) -> str:
    """Return ``name``; raises ``ValueError`` unless it can be a part of file names."""
    if not isinstance(name, str) or not name or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no model name. Use a non-empty string without slashes: it names files.")
    return name


def get_model_name() -> str:
    """Return the current model name, ``model_default`` if none was set."""
    return _model_name


def get_rank() -> int:
    """Return the rank in the default process group, or the current neuron device's index without one."""
    import torch
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return torch.accelerator.current_device_index()


class GraphNames:
    """Names the graphs of one call of the backend."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.aot_id = next(_aot_ids)
        self._counts: Counter[GraphKind] = Counter()

    def name(self, kind: GraphKind) -> str:
        """Return the next name for a graph of ``kind``."""
        nth = self._counts[kind]
        self._counts[kind] += 1
        return f"{self.model}_{self.aot_id}_{kind}_{nth}"
