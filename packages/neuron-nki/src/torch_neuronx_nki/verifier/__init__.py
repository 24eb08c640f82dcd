"""Verifies kernels: rules that single instructions do not show, findings with line and hint, and files of kernels."""
