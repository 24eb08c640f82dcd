"""``torch.compile(backend="neuron")``: FX graphs in, NEFFs and callables out.

Importing this package imports neither torch nor a compiler; the compile worker depends on that.
"""
