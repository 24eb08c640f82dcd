"""The chip's compiler, ``neuronx-cc``: its flags, and its command line on StableHLO programs."""
