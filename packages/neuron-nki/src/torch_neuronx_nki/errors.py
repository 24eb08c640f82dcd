"""What can go wrong between a kernel and PyTorch."""

from torch_neuronx.errors import NeuronError


class NkiSchemaError(NeuronError, ValueError):
    """No operator schema follows from the name, the annotations and ``mutates_args`` that were given."""

    code = "nki-schema"


class NkiShapeError(NeuronError):
    """The shapes of an operator's results do not follow from its function without data."""

    code = "nki-shape"
