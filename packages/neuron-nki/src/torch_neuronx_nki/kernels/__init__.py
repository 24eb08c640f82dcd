"""Kernels that are offered in place of operators of PyTorch, each with its gradient, predicate and torch equivalent."""
