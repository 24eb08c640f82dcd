"""The logger ``torch_neuronx`` and its children.

``TORCH_NEURONX_LOG_LEVEL`` is applied when a logger is first asked for. Where the variable is set and the program
configures no logging of its own, records go to stderr; otherwise they go wherever the program sends them.
"""

import logging
from functools import cache

from torch_neuronx import config

NAME = "torch_neuronx"

DETAIL = 15
"""Level of messages about single operators and graphs."""

_LEVELS = (logging.WARNING, logging.INFO, DETAIL, logging.DEBUG)


def logger(part: str = "") -> logging.Logger:
    """Return the project's logger, or its child for one part (``"compile"``).

    Raises :class:`ConfigurationError` if ``TORCH_NEURONX_LOG_LEVEL`` is not a level.
    """
    _configure()
    return logging.getLogger(f"{NAME}.{part}" if part else NAME)


@cache
def _configure() -> None:
    setting = config.read(config.LOG_LEVEL)
    if setting.source is config.Source.DEFAULT:
        return  # the root logger's level, WARNING unless the program says otherwise
    log = logging.getLogger(NAME)
    log.setLevel(_LEVELS[setting.value])
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    handler.addFilter(_no_handlers_at_root)
    log.addHandler(handler)


def _no_handlers_at_root(_: logging.LogRecord) -> bool:
    return not logging.getLogger().handlers
