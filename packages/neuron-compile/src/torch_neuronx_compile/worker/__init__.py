"""The compile worker: a child process that runs MLIR and XLA, which can abort, so that the user's process never does.

``client`` is the user's side, made of ``pool`` and ``child``; ``__main__`` is the child's side. The other modules run
in the child and import no torch.
"""
