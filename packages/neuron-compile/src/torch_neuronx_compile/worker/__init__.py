"""The compile worker: a child process that runs MLIR and XLA, which can abort, so that the user's process never does.

``client`` is the user's side, ``__main__`` the child's. The other modules run in the child and import no torch.
"""
