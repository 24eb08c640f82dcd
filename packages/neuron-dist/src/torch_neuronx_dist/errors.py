"""The errors of this package."""

from typing import ClassVar

from torch_neuronx.errors import NeuronError


class GroupOrderError(NeuronError):
    """A tensor was made on the device before the first process group."""

    code: ClassVar[str] = "group-order"


class VersionMismatchError(NeuronError):
    """The ranks of a job do not run the same versions."""

    code: ClassVar[str] = "rank-versions"


class RendezvousError(NeuronError, ConnectionError):
    """The place where the ranks of a job meet cannot be reached."""

    code: ClassVar[str] = "rendezvous"
