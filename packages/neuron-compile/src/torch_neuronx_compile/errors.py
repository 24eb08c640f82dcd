"""The errors of this package as Dynamo lets them through: without a wrapper around them."""

from torch_neuronx.errors import ConfigurationError, NEFFCompilationError, NeuronError
from torch_neuronx_compile._compat import ShortenTraceback


class GraphCompilationError(NEFFCompilationError, ShortenTraceback):
    """A graph did not become a NEFF.

    ``op`` is the operator at fault if one is known, ``reason`` what the stage that failed said, ``artifact`` the
    directory that holds the graph as that stage saw it.
    """

    def __init__(self, message: str, *, op: str | None, reason: str, artifact: str | None) -> None:
        super().__init__(message, first_useful_frame=None)
        self.op = op
        self.reason = reason
        self.artifact = artifact


class StaticShapeError(ConfigurationError, ShortenTraceback):
    """Dynamic shapes were asked for; a NEFF has static ones."""

    def __init__(self, message: str) -> None:
        super().__init__(message, first_useful_frame=None)


class NestedRegionError(NeuronError, ShortenTraceback):
    """A graph calls a region that was marked to be compiled by itself."""

    code = "nested-region"

    def __init__(self, message: str) -> None:
        super().__init__(message, first_useful_frame=None)
