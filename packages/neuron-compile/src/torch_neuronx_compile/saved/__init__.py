"""Compiled graphs as plain data, inside the entries of PyTorch's caches of traced functions.

``record`` says what is kept of a graph, ``envelope`` how it becomes bytes that are verified when they are read,
``graph`` is the object that PyTorch puts into its entries, ``fingerprint`` what goes into PyTorch's keys, and
``precompile`` writes Dynamo's entries when the process ends.
"""
