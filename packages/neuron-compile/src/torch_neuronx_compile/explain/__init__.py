"""What ``torch.compile(backend="neuron")`` did with a program, and why.

``recorder`` collects while the program runs, ``report`` is what it hands over, ``text`` and ``page`` show it. ``call``
and ``script`` are the two doors: one call, or a program of the user's.
"""
