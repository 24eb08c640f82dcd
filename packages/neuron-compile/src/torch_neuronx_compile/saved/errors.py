"""The error of saved graphs that cannot be used."""

from torch_neuronx.errors import NEFFExecutionError


class SavedGraphError(NEFFExecutionError):
    """A compiled graph that was saved is damaged, or was made for something that is not here."""

    code = "saved-graph"
