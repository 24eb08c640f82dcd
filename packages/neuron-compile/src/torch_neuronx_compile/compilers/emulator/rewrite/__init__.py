"""StableHLO as the emulator's XLA runs it fast: calls of ATen in place of what XLA:CPU does slowly. Runs in the worker.

Only the emulator's own copy of a program is rewritten; the canonical one, which is keyed and shipped, stays as it is.
"""
