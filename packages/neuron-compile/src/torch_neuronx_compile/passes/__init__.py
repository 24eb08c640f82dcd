"""FX passes: what AOT Autograd hands over, made into what torch-mlir takes. One pass per module.

Each works in place on a graph that the caller owns and returns what the caller has to know about it.
"""
