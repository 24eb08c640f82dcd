"""An example of a plugin for torch-neuronx."""
