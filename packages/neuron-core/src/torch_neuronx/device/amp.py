"""Mixed precision under the names of ``torch.cuda.amp``; ``torch.autocast("neuron")`` is the same thing."""

from typing import Any

import torch


class autocast(torch.autocast):
    """``torch.autocast("neuron", ...)``, with CUDA's operator conventions and its default dtype, float16."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True) -> None:
        super().__init__("neuron", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("neuron", ...)``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("neuron", *args, **kwargs)
