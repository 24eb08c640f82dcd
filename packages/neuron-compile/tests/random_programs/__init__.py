"""Random programs over tensors: what they compute is compared between the CPU and a compiled graph.

A program is a list of statements over typed values. Values carry whether they are *exact*: the same on every machine,
bit for bit. Only those reach statements whose result jumps (comparisons, rounding, sorting, conversion to integers),
where one unit in the last place would change everything after it.
"""

from .compare import all_agree, disagreement
from .generate import programs
from .program import Input, Layout, Program
from .refusals import pytorch_refuses

__all__ = ["Input", "Layout", "Program", "all_agree", "disagreement", "programs", "pytorch_refuses"]
