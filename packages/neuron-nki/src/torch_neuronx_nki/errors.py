"""What can go wrong between a kernel and PyTorch, and inside a kernel."""

from typing import Any

from torch_neuronx.errors import NeuronError


class NkiSchemaError(NeuronError, ValueError):
    """No operator schema follows from the name, the annotations and ``mutates_args`` that were given."""

    code = "nki-schema"


class NkiShapeError(NeuronError):
    """The shapes of an operator's results do not follow from its function without data."""

    code = "nki-shape"


class NkiValidationError(NeuronError, ValueError):
    """A kernel breaks a rule of the language or of the chip."""

    code = "nki-validation"

    def __init__(
        self, message: str, *, rule: str = "", limit: Any = None, actual: Any = None, source: Any = None
    ) -> None:
        super().__init__(message)
        self.rule = rule
        """Which rule: a key of ``torch_neuronx_nki.rules.RULES``."""
        self.limit = limit
        """What the rule allows."""
        self.actual = actual
        """What the kernel has."""
        self.source = source
        """The line of the kernel (``torch_neuronx_nki.trace.SourceLocation``), or None."""


class NkiTypeError(NeuronError, TypeError):
    """A kernel does with a tensor, or another object of the language, what such objects do not do."""

    code = "nki-type"


class NkiLaunchError(NeuronError):
    """A kernel cannot be started, or its cores wait for one another for ever."""

    code = "nki-launch"


class NkiWarning(UserWarning):
    """The result of an instruction is not defined on the chip."""
