"""The errors of this package as Dynamo lets them through: without a wrapper around them."""

from typing import TYPE_CHECKING

from torch_neuronx.errors import ConfigurationError, NEFFCompilationError, NeuronError, RuntimeUnavailableError
from torch_neuronx_compile._compat import ShortenTraceback

if TYPE_CHECKING:
    from torch import fx


class GraphCompilationError(NEFFCompilationError, ShortenTraceback):
    """A graph did not become a NEFF.

    ``op`` is the operator at fault if one is known, ``reason`` what the stage that failed said, ``artifact`` the
    directory that holds the graph as that stage saw it. ``node`` is the call at fault, ``unsupported`` whether it is
    one that cannot lower at all, as opposed to one that ended the worker.
    """

    def __init__(
        self,
        message: str,
        *,
        op: str | None,
        reason: str,
        artifact: str | None,
        node: "fx.Node | None" = None,
        unsupported: bool = False,
    ) -> None:
        super().__init__(message, first_useful_frame=None)
        self.op = op
        self.reason = reason
        self.artifact = artifact
        self.node = node
        self.unsupported = unsupported


class StaticShapeError(ConfigurationError, ShortenTraceback):
    """Dynamic shapes were asked for; a NEFF has static ones."""

    def __init__(self, message: str) -> None:
        super().__init__(message, first_useful_frame=None)


class NestedRegionError(NeuronError, ShortenTraceback):
    """A graph calls a region that was marked to be compiled by itself."""

    code = "nested-region"

    def __init__(self, message: str) -> None:
        super().__init__(message, first_useful_frame=None)


class IndexBoundsError(NeuronError, IndexError):
    """An argument of a compiled function holds an index outside of what is indexed with it."""

    code = "index-bounds"


class OptionError(ConfigurationError, ShortenTraceback):
    """An option, a variable or a flag of the compiler cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(message, first_useful_frame=None)


class CompilerUnavailableError(RuntimeUnavailableError, ShortenTraceback):
    """The compiler or the runtime that was asked for is not on this machine."""

    def __init__(self, message: str) -> None:
        super().__init__(message, first_useful_frame=None)


def let_through(error: ConfigurationError | RuntimeUnavailableError) -> ShortenTraceback:
    """Return ``error`` as one of the classes that Dynamo does not wrap."""
    if isinstance(error, ShortenTraceback):
        return error
    kind = OptionError if isinstance(error, ConfigurationError) else CompilerUnavailableError
    return kind(str(error))
