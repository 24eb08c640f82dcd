"""The first dialect of the kernel language, ``neuronxcc.nki``, as published samples use it; see ``api``."""
